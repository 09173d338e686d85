"""The operator's own traces and metrics, as a collector gets them from the SDK."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from latencyprobe_operator.plan.deliveries import Change, Delivery
from latencyprobe_operator.telemetry import NoTelemetry, SdkTelemetry, telemetry


class Sink(ThreadingHTTPServer):
    """An OTLP collector that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        self.server.got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    with Sink() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=test")
        for patience in ("_CLOSING_S", "_LOOP_S"):
            monkeypatch.setattr(f"latencyprobe_operator.telemetry.{patience}", 60.0)
        yield server
        server.shutdown()


def plain(attributes: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value or str(a.value.array_value) for a in attributes}


def test_a_change_is_one_trace_from_what_was_seen_to_each_agent_that_follows(sink: Sink) -> None:
    began_s = time.monotonic() - 5
    own = telemetry("latencyprobe")
    change = Change(began_s, began_s + 0.2, began_s + 0.5, nodes=7, namespaces=("shop",))
    own.delivered(Delivery(change, {"n1": began_s + 2, "n2": None}))
    own.close()
    ((_, body),) = [got for got in sink.got if got[0] == "/v1/traces"]
    (of_resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    resource = plain(of_resource.resource.attributes)
    assert (resource["service.name"], resource["k8s.namespace.name"]) == ("latencyprobe-operator", "latencyprobe")
    assert resource["k8s.cluster.name"] == "test"
    spans = {(s.name, plain(s.attributes).get("k8s.node.name")): s for s in of_resource.scope_spans[0].spans}
    root = spans["plan change", None]
    assert plain(root.attributes)["latencyprobe.nodes"] == 7
    assert {s.parent_span_id for key, s in spans.items() if key[0] != "plan change"} == {root.span_id}
    took_ms = {key: round((s.end_time_unix_nano - s.start_time_unix_nano) / 1e6) for key, s in spans.items()}
    assert took_ms == {
        ("plan change", None): 2000,
        ("plan", None): 300,
        ("deliver", "n1"): 1500,
        ("deliver", "n2"): 1500,
    }
    assert "not followed" in spans["deliver", "n2"].status.message
    age_s = time.time() - root.start_time_unix_nano / 1e9
    assert abs(age_s - (time.monotonic() - began_s)) < 1, "stamps are wall clock"


class Figures(Collector):
    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily("latencyprobe_operator_nodes", "Nodes.", labels=["state"])
        gauge.add_metric(["ready"], 2)
        counter = CounterMetricFamily("latencyprobe_operator_writes", "Writes.", labels=["kind", "result"])
        for key, n in Counter({("label", "ok"): 4, ("label", "error"): 1}).items():
            counter.add_metric(key, n)
        yield from (gauge, counter)


def test_metrics_are_those_of_the_prometheus_endpoint_and_the_time_of_deliveries(sink: Sink) -> None:
    own = telemetry("latencyprobe")
    own.export(Figures())
    own.observe(0.7)
    own.close()
    (body,) = [got for path, got in sink.got if path == "/v1/metrics"]
    (of_resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    metrics = {m.name: m for m in of_resource.scope_metrics[0].metrics}
    (ready,) = metrics["latencyprobe.operator.nodes"].gauge.data_points
    assert (plain(ready.attributes), ready.as_double) == ({"state": "ready"}, 2)
    writes = metrics["latencyprobe.operator.writes"].sum
    assert writes.is_monotonic
    assert {plain(p.attributes)["result"]: p.as_double for p in writes.data_points} == {"ok": 4, "error": 1}
    (delivery,) = metrics["latencyprobe.operator.plan.delivery"].histogram.data_points
    assert (delivery.count, delivery.sum) == (1, 0.7)


def test_figures_are_read_by_the_loop_that_changes_them(sink: Sink) -> None:
    readers: set[int] = set()

    class Own(Figures):
        def collect(self) -> Iterator[Metric]:
            readers.add(threading.get_ident())
            return super().collect()

    async def scene() -> None:
        own = telemetry("latencyprobe")
        own.export(Own())
        await asyncio.to_thread(own.close)
        assert readers == {threading.get_ident()}

    asyncio.run(scene())
    assert [path for path, _ in sink.got] == ["/v1/metrics"]


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, NoTelemetry),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, NoTelemetry),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1", "OTEL_SDK_DISABLED": "true"}, NoTelemetry),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, SdkTelemetry),
    ],
)
def test_only_who_names_an_endpoint_has_telemetry(environment: dict[str, str], kind: type) -> None:
    own = telemetry("latencyprobe", environment)
    assert isinstance(own, kind)
    own.close()


def test_a_signal_that_is_not_wanted_is_not_sent(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    own = telemetry("latencyprobe")
    own.export(Figures())
    own.observe(0.7)
    own.delivered(Delivery(Change(1, 2, 3, 1), {"n1": 4}))
    own.close()
    assert {path for path, _ in sink.got} == {"/v1/traces"}


def test_who_has_none_does_not_pay_for_it() -> None:
    code = "import sys, json, latencyprobe_operator.app; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert not [name for name in json.loads(found) if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]


SILENT = """
import os, socket
from latencyprobe_operator.plan.deliveries import Change, Delivery
from latencyprobe_operator.telemetry import telemetry

with socket.create_server(("127.0.0.1", 0)) as silent:
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
    os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "3600"
    own = telemetry("latencyprobe")
    own.delivered(Delivery(Change(1, 2, 3, 1), {"n1": 4}))
    own.close()
"""


@pytest.mark.slow
def test_a_collector_that_never_answers_does_not_hold_up_the_end() -> None:
    ended = subprocess.run([sys.executable, "-c", SILENT], check=True, timeout=120, capture_output=True, text=True)
    assert "does not take the last traces and metrics" in ended.stderr
