"""Calls of HTTP/2 between other people's clients and servers: each is told once at each end, and linked to its own."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.support.api_server import BENCH
from tests.support.ports import free_port
from tests.support.servers import nginx, version
from tests.truth.calls import tell
from tests.truth.grpc_calls import Grpc, at_once
from tests.truth.streams import Streams, assert_unary

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def go_calls() -> Path:
    """The program of tests/e2e/bench/programs/calls."""
    return Path(subprocess.check_output([BENCH, "program", "calls"], text=True).strip())


@pytest.mark.timeout(600)  # it may be compiled first
@pytest.mark.parametrize("threads", [1, 10, 50])
def test_each_call_of_grpc_in_go_is_an_event_at_both_ends(
    streams: Streams, port: int, go_calls: Path, threads: int
) -> None:
    streams.measure(port)
    subprocess.run([go_calls, "both", str(port), "5000", str(threads)], check=True)
    found = streams.records_of_ended()
    tell("gRPC in Go 1.85.0", f"`protocol: HTTP2`, {threads} at once", 5000, found)
    assert_unary(found, 5000)


@pytest.mark.parametrize("at_a_time", [1, 10, 100])
def test_each_request_of_h2load_to_nginx_is_an_event_at_both_ends(
    streams: Streams, port: int, tmp_path: Path, at_a_time: int
) -> None:
    streams.measure(port)
    with nginx(tmp_path, port, f'return 200 "{"x" * 1000}";', more=f"listen {port} http2;"):
        subprocess.run(
            ["h2load", "-n", "5000", "-c", "1", "-m", str(at_a_time), f"http://127.0.0.1:{port}/"],
            check=True,
            capture_output=True,
        )
        found = streams.records_of_ended()
    assert len((tmp_path / "access.log").read_text().splitlines()) == 5000
    tell(f"nginx {version('nginx', '-v')}", f"h2load, `protocol: HTTP2`, {at_a_time} at once", 5000, found)
    assert_unary(found, 5000)


def test_calls_through_nginx_are_pairs_of_each_hop_and_never_of_both(
    streams: Streams, port: int, tmp_path: Path
) -> None:
    """Which connection to the server behind it a call takes is nginx's own choice."""
    behind, calls = free_port(), 2000
    streams.measure(port, behind)
    with (
        nginx(tmp_path, port, f"grpc_pass grpc://127.0.0.1:{behind};", more=f"listen {port} http2;"),
        Grpc(behind, through=port) as one,
    ):
        at_once(calls, 10, one.echo)
    found = streams.records_of_ended()
    assert (found["outcome"] == Outcome.OK).all()
    assert (found["excluded"] == Excluded.NONE).all()
    for role in (Role.CLIENT, Role.SERVER):
        ports = found["peer_port" if role is Role.CLIENT else "local_port"][found["role"] == role]
        assert {int(hop): int(count) for hop, count in zip(*np.unique(ports, return_counts=True), strict=True)} == {
            port: calls,
            behind: calls,
        }
    pairs = LocalJoin(4 * calls).join(halves(found.copy()))
    assert len(pairs) == 2 * calls
    assert (pairs.client.rec["peer_port"] == pairs.server.rec["local_port"]).all()
    assert (pairs.client.rec["local_port"] == pairs.server.rec["peer_port"]).all(), "both ends of one connection"
