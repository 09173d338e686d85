"""The bug that everybody knows, from the socket to the screen: headers and body by two writes, and a delayed ACK."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.report.units import duration_ns
from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.otlp import OtlpSink, points, spans, values
from tests.support.ports import free_port

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
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
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


@pytest.fixture
def shop() -> Iterator[int]:
    """The port of a server of Python's own, as its documentation has it."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE)
    assert server.stdout
    assert server.stdout.readline() == b"ready\n"
    yield port
    server.kill()
    server.communicate()


def ask(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(REQUESTS):
        connection.request("GET", "/")
        assert len(connection.getresponse().read()) == BODY
    connection.close()


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
    ask(shop)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    results = {result["objective"]: result for result in json.loads(out)["results"]}
    print({name: result.get("evidence") for name, result in results.items()})

    caller = results["fast"]
    assert caller["bad"] > 0
    (unsent,) = (one for one in caller["evidence"] if one["signal"] == "unsent")
    assert unsent["bad"] == caller["bad"], "each slow one for the same reason"
    for slow in caller["slowest"]:
        (held,) = (one for one in slow["evidence"] if one["signal"] == "unsent")
        assert (held["what"], held["count"]) == ("server nagle", BODY)
        stages = {stage["stage"]: duration_ns(stage["duration"]) for stage in slow["stages"]}
        assert max(stages, key=stages.__getitem__) == "network"
        assert duration_ns(held["wait"]) > stages["network"] / 2

    slow, _ = started("slow", "--store", store).communicate(timeout=DEADLINE_S)
    print(slow)
    told = one_line(re.sub(r"[0-9a-f]{32}|[nPsdDSw]{14}|\S+/\S+", " ", slow))
    assert re.search(f"of it {SENTENCE}", told), slow
    report, _ = started("report", "--store", store).communicate(timeout=DEADLINE_S)
    print(report)
    assert re.search("unsent hit 100 % of the bad ones", one_line(report))

    of_kind: dict[int, list[Span]] = {}
    for _, span in spans(otlp_sink.bodies("traces")):
        if "latencyprobe.tcp.unsent.reason" in values(span.attributes):
            of_kind.setdefault(span.kind, []).append(span)
    assert of_kind.keys() == {Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER}, "both halves tell"
    assert len(of_kind[Span.SPAN_KIND_CLIENT]) == len(of_kind[Span.SPAN_KIND_SERVER]) >= caller["bad"]
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
