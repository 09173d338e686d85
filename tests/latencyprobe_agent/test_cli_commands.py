import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe import group, parsing
from latencyprobe.plan import Container, NodePlan, PlannedObjective, Pod, Role, SpanPolicy, Target, TargetPod
from latencyprobe.plan_stream import PlanLine
from latencyprobe_agent.cli import commands
from latencyprobe_agent.identity.cgroups import find_root
from tests.latencyprobe_agent.processes import DEADLINE_S, PROBE, Echo, started
from tests.support.otlp import OtlpSink, of_rpcs, values
from tests.support.ports import free_port
from tests.support.waiting import wait_until

UID = f"0a1b2c3d-1111-2222-3333-{os.getpid():012x}"  # of this run: agents of another one see its cgroups too
EXAMPLES = Path(__file__).parents[2] / "examples"
CONTAINER = f"{os.getpid():064x}"


@pytest.fixture
def container() -> Iterator[Path]:
    """A cgroup as a kubelet with the cgroupfs driver makes it."""
    top = find_root() / f"lp-{os.getpid()}-kubepods"
    leaf = top / f"pod{UID}" / CONTAINER
    leaf.mkdir(parents=True)
    yield leaf
    for folder in (leaf, leaf.parent, top):
        wait_until(lambda folder=folder: "populated 0" in (folder / "cgroup.events").read_text())
        folder.rmdir()


@pytest.fixture
def directory_environ(
    directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path, tmp_path: Path
) -> dict[str, str]:
    """What the chart sets."""
    return {
        "LATENCYPROBE_NODE": "n1",
        "LATENCYPROBE_DIRECTORY": directory_server.url,
        "LATENCYPROBE_TOKEN_FILE": str(token_file),
        "LATENCYPROBE_CA_FILE": str(tls_files[0]),
        "LATENCYPROBE_STATE_DIR": str(tmp_path / "state"),
        "LATENCYPROBE_HEALTH_PORT": "0",
    }


@pytest.mark.root
def test_the_agent_of_a_node_measures_the_pods_of_its_plan_and_nothing_else(
    directory_server: Any, directory_environ: dict[str, str], otlp_sink: OtlpSink, container: Path, tmp_path: Path
) -> None:
    inside, outside = Echo(free_port(), container), Echo(free_port())
    resource = {"service.name": "cart", "k8s.pod.name": "cart-0", "k8s.namespace.name": "shop"}
    pod = Pod(UID, "shop", "cart-0", ("127.0.0.1",), (Container("cart", CONTAINER),), resource)
    target = Target(
        *("shop/p/cart", "shop", "p", "probe-uid", "cart", Role.SERVER, (10**10,), 0, SpanPolicy(1, 1.0, 10_000)),
        pods=(TargetPod(UID, ()),),
    )
    objective = PlannedObjective("shop/p/fast", target.id, "fast", Role.SERVER, 0, True, "hash", "99", "28d", 1)
    plan = NodePlan("n1", 3, "d", (target,), (objective,), (pod,), pair_key=b"k" * 32)
    directory_server.plan_lines = [msgspec.json.encode(PlanLine(plan)) + b"\n"]
    caller = {"address": "127.0.0.1", "namespace": "shop", "pod": "web-0", "service": "web", "measured": [target.id]}
    directory_server.answers |= {
        "/v1/nodes/n1/status": (200, {}),
        "/v1/nodes/n1/sli": (200, lambda batch: {"expected": batch["sequence"] + 1}),
        "/v1/identities": (200, {"identities": [caller], "generation": 3}),
    }
    agent = started("agent", **directory_environ, OTEL_EXPORTER_OTLP_ENDPOINT=otlp_sink.url)

    def told(path: str) -> list[dict[str, Any]]:
        return [document for asked, _, document in directory_server.requests if asked == f"/v1/nodes/n1/{path}"]

    def good() -> int:
        return sum(row.get("good", 0) for batch in told("sli") for row in batch["rows"])

    try:
        wait_until(lambda: 3 in [status["generation"] for status in told("status")], "the plan is in force", DEADLINE_S)
        inside.ask(1)  # who asks is looked up; a span waits for that, but not for ever
        wait_until(lambda: "/v1/identities" in [asked for asked, *_ in directory_server.requests], "it is asked for")
        inside.ask(40)
        outside.ask(25)
        wait_until(lambda: good() == 41, "41 good", DEADLINE_S, seen=good)
        wait_until(lambda: len(of_rpcs(otlp_sink.bodies("traces"))) == 41, "41 spans", DEADLINE_S)
    finally:
        agent.send_signal(signal.SIGTERM)
        out, err = agent.communicate(timeout=DEADLINE_S)
        inside.close()
        outside.close()
    assert agent.returncode == 0, err
    assert out == ""
    assert good() == 41
    assert {one["reason"] for one in map(json.loads, err.splitlines()) if "reason" in one} == set()
    assert b"k" * 32 not in err.encode()
    assert (tmp_path / "state" / "plan.json").stat().st_mode & 0o777 == 0o600
    found = of_rpcs(otlp_sink.bodies("traces"))
    assert len(found) == 41
    assert sum(values(span.attributes).get("service.peer.name") == "web" for _, span in found) >= 40
    for resource_seen, span in found:
        assert resource_seen["service.name"] == "cart"
        assert resource_seen["k8s.container.name"] == "cart"
        assert resource_seen["container.id"] == CONTAINER
        assert span.kind == Span.SPAN_KIND_SERVER
        assert span.parent_span_id or "service.peer.name" not in values(span.attributes)


def test_plan_says_what_would_be_measured_and_what_is_missing(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=port))
    result = CliRunner().invoke(commands.plan, ["-f", str(tmp_path / "probe.yaml")])
    assert result.exit_code == 0
    assert f"nothing listens on {port}" in result.output
    assert "fast: 99% within 10s (server, 28d)" in result.output
    with socket.create_server(("127.0.0.1", port)):
        result = CliRunner().invoke(commands.plan, ["-f", str(tmp_path / "probe.yaml")])
    assert "nothing listens" not in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give -f FILE or --port PORT: what to measure; on this host listen: "),
        (["--port", "80", "-f", "x.yaml"], "give -f FILE or --port PORT"),
        (["-f", "x.yaml", "--threshold", "5ms"], "--threshold and --protocol go with --port: a file has its own"),
        (["--port", "80", "--threshold", "5x"], "spec.objectives[0].threshold: '5x': expected a duration such as 25ms"),
    ],
)
def test_run_says_what_it_lacks(args: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert group.run(["run", *args]) != 0
    assert message in capfd.readouterr().err


def test_a_file_may_come_through_standard_input() -> None:
    (wanted,) = parsing.load_file(EXAMPLES / "redis.yaml")
    result = CliRunner().invoke(commands.plan, ["-f", "-"], input=(EXAMPLES / "redis.yaml").read_bytes())
    assert f"{wanted.namespace}/{wanted.name}/redis" in result.output


def test_plan_as_json_is_a_node_plan_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=80))
    result = CliRunner().invoke(commands.plan, ["-f", str(tmp_path / "probe.yaml"), "-o", "json"])
    assert msgspec.json.decode(result.output, type=NodePlan).pair_key == b""
