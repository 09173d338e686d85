import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.plan import Container, NodePlan, PlanLine, PlannedObjective, Pod, Role, SpanPolicy, Target, TargetPod
from latencyprobe_agent.cli import commands
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.kernel.hooks import KERNEL_BTF
from tests.support.otlp import OtlpSink, points, spans, values
from tests.support.ports import free_port
from tests.support.waiting import wait_until

SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)
"""
CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(b"12345678")
        assert connection.recv(100) == b"12345678"
"""
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: echo}}
spec:
  targets: [{{name: echo, ports: [{port}]}}]
  objectives: [{{name: fast, target: echo, threshold: 10s, goal: "99", minEvents: 1}}]
  spans: {{ratio: "1", maxPerSecond: 10000}}
"""
DEADLINE_S = 30
UID = f"0a1b2c3d-1111-2222-3333-{os.getpid():012x}"  # of this run: agents of another one see its cgroups too
CONTAINER = f"{os.getpid():064x}"


class Echo:
    """A server process in a cgroup of its own choice; `ask()` runs a client process to its end."""

    def __init__(self, port: int, cgroup: Path | None = None) -> None:
        self.port = port
        command = [sys.executable, "-c", SERVER, str(port)]
        if cgroup:
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def ask(self, times: int) -> None:
        subprocess.run([sys.executable, "-c", CLIENT, str(self.port), str(times)], check=True)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo(free_port())
    yield server
    server.close()


def counters_of(sink: OtlpSink) -> Counter[tuple[str, ...]]:
    """Return the newest value of each counter by metric and attribute values, all resources added up."""
    found: Counter[tuple[str, ...]] = Counter()
    for series, point in points(sink.bodies("metrics")).items():
        found[series.metric, *dict(series.labels).values()] += int(point.value)
    return found


def started(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from latencyprobe.cli import main; main()", *arguments]
    environment = {**os.environ, **environ, "NO_COLOR": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, bufsize=1
    )


@pytest.mark.root
def test_run_measures_every_rpc_links_its_halves_and_reports(echo: Echo, otlp_sink: OtlpSink, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "--otlp", otlp_sink.url)
    agent = started("run", *arguments, "-o", "json")
    assert agent.stderr
    assert "measuring echo" in agent.stderr.readline()
    echo.ask(500)
    echo.ask(7)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    assert "507 RPCs" in err
    assert "507 pairs, 0 lost" in err

    (result,) = json.loads(out)["results"]
    assert (result["events"], result["bad"], result["state"]) == (507, 0, "Met")
    assert result["coverage"]["joined"] == 507

    by_trace: dict[bytes, dict[int, tuple[dict[str, Any], Span]]] = {}
    for resource, span in spans(otlp_sink.bodies("traces")):
        by_trace.setdefault(span.trace_id, {})[span.kind] = resource, span
    assert len(by_trace) == 507
    for halves in by_trace.values():
        client, server = halves[Span.SPAN_KIND_CLIENT], halves[Span.SPAN_KIND_SERVER]
        assert server[1].parent_span_id == client[1].span_id
        assert server[0]["process.pid"] == echo.process.pid
        assert server[0]["service.name"].startswith("python")
        starts = [half[1].start_time_unix_nano for half in (client, server)]
        assert starts[0] < starts[1] < client[1].end_time_unix_nano
    counters = counters_of(otlp_sink)
    assert counters["latencyprobe.slo.events", "echo", "echo", "fast", "server", "good"] == 507
    assert counters["latencyprobe.pairs", "echo", "echo", "client", "local"] == 507


@pytest.mark.root
def test_an_absent_collector_is_one_message_and_delays_nothing(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "-o", "json")
    agent = started("run", *arguments, "--otlp", f"http://127.0.0.1:{free_port()}", OTEL_METRICS_EXPORTER="none")
    assert agent.stderr
    agent.stderr.readline()
    echo.ask(50)
    told = agent.stderr.readline()
    assert "Connection refused: no spans delivered" in told
    echo.ask(50)
    agent.send_signal(signal.SIGTERM)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert json.loads(out)["results"][0]["events"] == 100
    assert err.count("Connection refused") == 0
    assert "200 spans could not be delivered" in err


@pytest.mark.root
def test_run_ends_by_itself_after_its_duration(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "--duration", "300ms")
    out, err = started("run", *arguments).communicate(timeout=DEADLINE_S)
    assert "needs 100 events to judge, has 0" in out
    assert "0 RPCs" in err


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

    try:
        wait_until(lambda: any(status["generation"] == 3 for status in told("status")), "the plan is in force", 30)
        inside.ask(40)
        outside.ask(25)
        good = wait_until(
            lambda: sum(row.get("good", 0) for batch in told("sli") for row in batch["rows"]), "counts", 30
        )
        found = wait_until(lambda: spans(otlp_sink.bodies("traces")), "spans", 30)
    finally:
        agent.send_signal(signal.SIGTERM)
        out, err = agent.communicate(timeout=DEADLINE_S)
        inside.close()
        outside.close()
    assert agent.returncode == 0, err
    assert out == ""
    assert good == 40
    assert {one["reason"] for one in map(json.loads, err.splitlines()) if "reason" in one} == set()
    assert b"k" * 32 not in err.encode()
    assert (tmp_path / "state" / "plan.json").stat().st_mode & 0o777 == 0o600
    assert len(found) == 40
    for resource_seen, span in found:
        assert resource_seen["service.name"] == "cart"
        assert resource_seen["k8s.container.name"] == "cart"
        assert resource_seen["container.id"] == CONTAINER
        attributes = values(span.attributes)
        assert (span.kind, attributes["service.peer.name"]) == (Span.SPAN_KIND_SERVER, "web")
        assert span.parent_span_id


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


def test_plan_as_json_is_a_node_plan_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=80))
    result = CliRunner().invoke(commands.plan, ["-f", str(tmp_path / "probe.yaml"), "-o", "json"])
    assert msgspec.json.decode(result.output, type=NodePlan).pair_key == b""


def test_doctor_names_consequence_and_remedy_and_fails_when_nothing_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LATENCYPROBE_BTF", str(tmp_path / "no-btf"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("LATENCYPROBE_DIRECTORY", f"https://localhost:{free_port()}")
    monkeypatch.setenv("LATENCYPROBE_TOKEN_FILE", str(tmp_path / "no-token"))
    result = CliRunner().invoke(commands.doctor, ["-o", "json"], standalone_mode=False)
    assert result.return_value == 1
    findings = {line["subject"]: line for line in map(json.loads, result.output.splitlines())}
    assert findings["type information"]["verdict"] == "fail"
    assert "CONFIG_DEBUG_INFO_BTF" in findings["type information"]["remedy"]
    assert findings["programs"]["verdict"] == "fail"
    assert "Connection refused" in findings["collector, traces"]["detail"]
    assert "no-token" in findings["directory"]["detail"]
    assert all(finding["remedy"] for finding in findings.values() if finding["verdict"] == "warn")


@pytest.mark.root
def test_doctor_is_content_where_everything_is_there() -> None:
    result = CliRunner().invoke(commands.doctor, [], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "send_start by tp_btf" in result.output


@pytest.mark.root
def test_doctor_names_what_a_kernel_without_socket_storage_costs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    types = KERNEL_BTF.read_bytes()
    (tmp_path / "btf").write_bytes(types.replace(b"bpf_sk_storage_tracing_allowed", b"bpf_sk_storage_tracing_missing"))
    monkeypatch.setenv("LATENCYPROBE_BTF", str(tmp_path / "btf"))
    result = CliRunner().invoke(commands.doctor, ["-o", "json"], standalone_mode=False)
    assert result.return_value == 0, result.output
    findings = {line["subject"]: line for line in map(json.loads, result.output.splitlines())}
    assert findings["programs"]["verdict"] == "warn"
    assert findings["programs"]["detail"].startswith("no socket storage")
    assert "not after the idle timeout; beyond 65,536 open" in findings["programs"]["consequence"]
    for evidence in ("retransmits", "handshakes", "tcprt"):
        assert findings[evidence]["verdict"] == "warn"
        assert "use Linux 5.11" in findings[evidence]["remedy"]


@pytest.mark.parametrize(("text", "seconds"), [("300ms", 0.3), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert commands.Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5x", "-1s", "0s", "1 m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        commands.Duration().convert(text, None, None)
