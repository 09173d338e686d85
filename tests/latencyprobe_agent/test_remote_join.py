"""Two agents of a cluster of two network namespaces, a real directory between them: slow RPCs get both halves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.measure.stages import PAIR_STAGES
from tests.latencyprobe_agent.two_nodes import Host, cluster, slow_rpcs, two_hosts
from tests.support.otlp import stages_ns, values
from tests.support.waiting import until
from tests.truth.join import CLIENT

pytestmark = pytest.mark.root

MS = 1_000_000
THRESHOLD_NS = 25 * MS
CAUSE_MS = 40  # of slow_rpcs
JOINED = 0.5  # of the bad exchanges, at the least: who is held up for the 4 s of a question answers none of it
NAMED = 0.95  # of those


@pytest.fixture
def hosts() -> Iterator[dict[str, Host]]:
    yield from two_hosts()


@pytest.mark.parametrize("cause", ["server-sleep", "client-stop"])
def test_slow_rpcs_between_two_nodes_get_both_halves(
    hosts: dict[str, Host], tls_files: tuple[Path, ...], tmp_path: Path, cause: str
) -> None:
    async def scene() -> None:
        async with cluster(hosts, tls_files, tmp_path) as it:
            truth = await asyncio.to_thread(slow_rpcs, hosts, tmp_path / "log", 2_000, cause)
            fewest, most = (int((ns > THRESHOLD_NS).sum()) for ns in truth.duration_ns(CLIENT))

            async def counted() -> bool:
                row = await it.read_row()
                return row.good + row.bad >= len(truth) and row.coverage.joined >= JOINED * row.bad

            await until(counted, "all are counted, nearly all slow ones joined", 60, seen=it.state, poll_s=0.2)
            row = it.row
            assert fewest <= row.bad <= most, "the client's log counts as many"
            counts = it.directory.streams.switchboard.counts
            named = sum(row.dominant.get(stage, 0) for stage in PAIR_STAGES)
            print(f"{cause}: bad {row.bad} of {len(truth)}, named {named}, {dict(row.dominant)}; keys {dict(counts)}")
            assert NAMED * row.coverage.joined <= named <= row.bad
            assert min(row.dominant.values()) >= 0
            expected = {"server-sleep": "server_process", "client-stop": "client_read_delay"}[cause]
            assert max(PAIR_STAGES, key=lambda stage: row.dominant.get(stage, 0)) == expected
            joined = [slow for slow in row.slowest if slow.joined]
            assert joined
            assert all(set(slow.stages) <= set(PAIR_STAGES) for slow in joined)
            await until(lambda: linked(it.spans) >= NAMED * named, "both halves of them are spans", 120)
            check(it.spans, expected, int((truth.client["cause"] > 0).sum()))

    asyncio.run(scene())


def linked(spans: list[Span]) -> int:
    """How many traces have both halves, if no half that was joined remotely still waits for its other one; else 0."""
    clients, servers = (
        {span.trace_id: values(span.attributes).get("latencyprobe.joined") for span in spans if span.kind == kind}
        for kind in (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER)
    )
    waiting = any(joined == "remote" and trace not in servers for trace, joined in clients.items())
    return 0 if waiting else len(clients.keys() & servers.keys())


def by_trace(spans: list[Span], kind: int) -> dict[bytes, Span]:
    return {span.trace_id: span for span in spans if span.kind == kind}


def check(spans: list[Span], stage: str, hit: int) -> None:
    """Both halves once, linked, each with its stages as child spans; the client's also with the pair's stages, which
    sum to its duration.

    `stage`: where `hit` of them were made to wait.
    """
    clients, servers = by_trace(spans, Span.SPAN_KIND_CLIENT), by_trace(spans, Span.SPAN_KIND_SERVER)
    halves = [span for span in spans if span.kind != Span.SPAN_KIND_INTERNAL]
    assert len(clients) + len(servers) == len(halves), "a half became two spans"
    drawn = stages_ns(spans)
    for half in halves:
        told = values(half.attributes)
        server_s = told["latencyprobe.stage.wait"] if "latencyprobe.joined" in told and "client.port" not in told else 0
        drawn_ns = sum(drawn.get((half.trace_id, half.span_id), {}).values()) + round(server_s * 1e9)
        assert drawn_ns == half.end_time_unix_nano - half.start_time_unix_nano
    attributes = {trace: values(span.attributes) for trace, span in clients.items()}
    joined = {trace: told for trace, told in attributes.items() if told.get("latencyprobe.joined") == "remote"}
    assert len(joined) >= JOINED * len(clients)
    for trace, told in joined.items():
        server = servers[trace]
        assert server.parent_span_id == clients[trace].span_id
        stages = [told[f"latencyprobe.stage.{stage}"] for stage in PAIR_STAGES]
        duration_ns = clients[trace].end_time_unix_nano - clients[trace].start_time_unix_nano
        assert sum(stages) * 1e9 == pytest.approx(duration_ns, abs=10)
        assert (told["service.peer.name"], told["service.peer.namespace"]) == ("cart-1", "shop")
        if told["latencyprobe.stage.network"] > 0:  # else parts lay side by side, and the server's were shortened
            of_server = values(server.attributes)["latencyprobe.stage.process"]
            assert told["latencyprobe.stage.server_process"] == pytest.approx(of_server, abs=1e-8)
    waited = sum(told[f"latencyprobe.stage.{stage}"] * 1e3 >= CAUSE_MS for told in joined.values())
    print(f"{len(joined)} remotely joined pairs, {stage} of {waited} waited as long as {hit} were made to")
    assert JOINED * hit <= waited
    reasons = {values(span.attributes)["latencyprobe.sampled.reason"] for span in servers.values()}
    assert {"server_process": "slow", "client_read_delay": "other_half"}[stage] in reasons <= {"slow", "other_half"}
