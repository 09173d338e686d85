"""The bug that everybody knows, from the socket to the screen: headers and body by two writes, and a delayed ACK."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.report.units import duration_ns
from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.latencyprobe_agent.two_nodes import PORT, Host, cluster, two_hosts
from tests.support.otlp import OtlpSink, points, spans, values
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.root

BODY = 500
REQUESTS = 40
SERVER = f"""
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "{BODY}")
        self.end_headers()
        self.wfile.write(bytes({BODY}))
    def log_message(self, *_):
        pass
server = http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler)
print("ready", flush=True)
server.serve_forever()
"""
CLIENT = f"""
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]))
for _ in range({REQUESTS}):
    connection.request("GET", "/")
    assert len(connection.getresponse().read()) == {BODY}
connection.close()
"""
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: shop}}
spec:
  targets: [{{name: shop, ports: [{port}]}}]
  objectives:
  - {{name: fast, target: shop, perspective: Client, threshold: 20ms, goal: "99", minEvents: 1}}
  - {{name: served, target: shop, threshold: 20ms, goal: "99", minEvents: 1}}
  spans: {{ratio: "1", maxPerSecond: 10000}}
"""
SENTENCE = "held by the server's kernel for [0-9.]+ ?ms: Nagle, until the client's ACK: set TCP_NODELAY or write once"


@contextmanager
def serving(host: str, port: int, prefix: Sequence[str] = ()) -> Iterator[None]:
    """A server of Python's own, as its documentation has it. `prefix`: a command that runs it elsewhere."""
    with subprocess.Popen([*prefix, sys.executable, "-c", SERVER, host, str(port)], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            server.kill()


@pytest.fixture
def shop() -> Iterator[int]:
    """The port of such a server."""
    port = free_port()
    with serving("127.0.0.1", port):
        yield port


def ask(host: str, port: int, prefix: Sequence[str] = ()) -> None:
    subprocess.run([*prefix, sys.executable, "-c", CLIENT, host, str(port)], check=True)


def one_line(told: str) -> str:
    """What a table says in one of its columns, lines of which are interrupted by nothing."""
    return " ".join(told.split())


def test_headers_and_body_by_two_writes_are_named_on_every_screen(
    shop: int, otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=shop))
    store = str(tmp_path / "sli.db")
    agent = started("run", "-f", str(tmp_path / "probe.yaml"), "--store", store, "--otlp", otlp_sink.url, "-o", "json")
    assert agent.stderr
    assert "measuring shop" in agent.stderr.readline()
    ask("127.0.0.1", shop)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    results = {result["objective"]: result for result in json.loads(out)["results"]}
    print({name: result.get("evidence") for name, result in results.items()})

    caller = results["fast"]
    assert caller["bad"] > 0
    (unsent,) = (one for one in caller["evidence"] if one["signal"] == "unsent")
    assert REQUESTS / 2 < unsent["bad"] <= caller["bad"], (
        "delayed ACKs take 40 ms; a busy machine makes others slow too"
    )
    named = 0
    for slow in caller["slowest"]:
        stages = {stage["stage"]: duration_ns(stage["duration"]) for stage in slow["stages"]}
        for held in (one for one in slow.get("evidence", ()) if one["signal"] == "unsent"):
            assert (held["what"], held["count"]) == ("server nagle", BODY)
            assert 0 < duration_ns(held["wait"]) <= stages["network"] * 1.01, "of three digits"
            named += max(stages, key=stages.__getitem__) == "network"
    assert named > 0

    slow, _ = started("slow", "--store", store).communicate(timeout=DEADLINE_S)
    print(slow)
    told = one_line(re.sub(r"[0-9a-f]{32}|[nPsdDSw]{14}|\S+/\S+", " ", slow))
    assert re.search(f"of it {SENTENCE}", told), slow
    report, _ = started("report", "--store", store).communicate(timeout=DEADLINE_S)
    print(report)
    assert re.search("unsent hit [0-9.]+ % of the bad ones", one_line(report))

    of_kind: dict[int, list[Span]] = {}
    for _, span in spans(otlp_sink.bodies("traces")):
        if "latencyprobe.tcp.unsent.reason" in values(span.attributes):
            of_kind.setdefault(span.kind, []).append(span)
    assert of_kind.keys() == {Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER}, "both halves tell"
    assert len(of_kind[Span.SPAN_KIND_CLIENT]) == len(of_kind[Span.SPAN_KIND_SERVER]) >= unsent["bad"]
    for span in (*of_kind[Span.SPAN_KIND_CLIENT], *of_kind[Span.SPAN_KIND_SERVER]):
        said = values(span.attributes)
        words = tuple(said[f"latencyprobe.tcp.unsent.{name}"] for name in ("holder", "reason", "size", "bound"))
        assert words == ("server", "nagle", BODY, "exact")
        if span.kind == Span.SPAN_KIND_CLIENT:
            assert 0 < said["latencyprobe.tcp.unsent.held"] <= said["latencyprobe.stage.network"]

    counted = {
        name: sum(point.value for series, point in points(otlp_sink.bodies("metrics")).items() if series.metric == name)
        for name in ("latencyprobe.tcp.unsent.exchanges", "latencyprobe.tcp.unsent.time")
    }
    assert counted["latencyprobe.tcp.unsent.exchanges"] == len(of_kind[Span.SPAN_KIND_SERVER])
    assert counted["latencyprobe.tcp.unsent.time"] > 0


@pytest.fixture
def hosts() -> Iterator[dict[str, Host]]:
    yield from two_hosts()


def test_what_a_server_on_another_node_held_is_named_to_its_caller(
    hosts: dict[str, Host], tls_files: tuple[Path, ...], tmp_path: Path
) -> None:
    async def scene() -> None:
        async with cluster(hosts, tls_files, tmp_path) as it:
            with serving("10.97.0.2", PORT, hosts["cart"].prefix):
                await asyncio.to_thread(ask, "10.97.0.2", PORT, hosts["web"].prefix)

            async def explained() -> bool:
                row = await it.read_row()
                count = row.evidence.get("unsent")
                return count is not None and count.bad > REQUESTS / 2  # who joined too late has nothing explained

            await until(explained, "the slow ones are joined and explained", 60, seen=it.state, poll_s=0.2)
            row = it.row
            print(row.bad, dict(row.evidence), row.slowest[0])
            held_by_kernel = [(slow, held) for slow in row.slowest for held in slow.evidence if held.signal == "unsent"]
            assert held_by_kernel
            for slow, held in held_by_kernel:
                assert (held.signal, held.what, held.count) == ("unsent", "server nagle", BODY)
                assert 0 < held.wait_ns <= slow.stages["network"]

            def told() -> list[dict[str, object]]:
                of_clients = (values(span.attributes) for span in it.spans if span.kind == Span.SPAN_KIND_CLIENT)
                return [said for said in of_clients if "latencyprobe.tcp.unsent.reason" in said]

            await until(lambda: len(told()) >= row.evidence["unsent"].bad, "the callers' halves are spans", 120)
            for said in told():
                words = tuple(said[f"latencyprobe.tcp.unsent.{name}"] for name in ("holder", "reason", "size"))
                assert (words, said["latencyprobe.joined"]) == (("server", "nagle", BODY), "remote")

    asyncio.run(scene())
