"""A chain of services under `latencyprobe run`: from the first one's slow span links lead to the last, and back."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.otlp import OtlpSink, spans, values
from tests.support.waiting import wait_until
from tests.truth.services import ask, chain, ports

pytestmark = pytest.mark.root

WAIT_MS = 150
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: shop}}
spec:
  targets:
  - {{name: front, ports: [{0}]}}
  - {{name: cart, ports: [{1}]}}
  - {{name: database, role: Client, ports: [{2}]}}
  objectives: [{{name: fast, target: front, threshold: 100ms, goal: "99", minEvents: 1}}]
  spans: {{ratio: "0", slowerThan: {3}}}
"""


class Spans:
    """What a collector got, by ids."""

    def __init__(self, sink: OtlpSink) -> None:
        self.all = [span for _, span in spans(sink.bodies("traces"))]
        self.by_id = {(span.trace_id, span.span_id): span for span in self.all}
        assert len(self.by_id) == len(self.all), "no span comes twice"

    def named(self, name: str, kind: Any) -> list[Span]:
        return [span for span in self.all if (span.name, span.kind) == (name, kind)]

    def linked(self, span: Span, what: str) -> list[Span]:
        """The spans that its links lead to, of one kind of link."""
        links = [link for link in span.links if values(link.attributes)["latencyprobe.link"] == what]
        return [self.by_id[link.trace_id, link.span_id] for link in links]

    def answer(self, client: Span) -> Span:
        """The other half of a client's span."""
        (found,) = (
            span for span in self.all if (span.kind, span.parent_span_id) == (Span.SPAN_KIND_SERVER, client.span_id)
        )
        return found


def measured(chained: list[int], slower_than: str, sink: OtlpSink, tmp_path: Path, times: int) -> dict[str, Any]:
    """Ask the first of three, and return the objective's result once the collector has the spans."""
    (tmp_path / "probe.yaml").write_text(PROBE.format(*chained, slower_than))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "--otlp", sink.url)
    agent = started("run", *arguments, "-o", "json")
    assert agent.stderr
    assert "measuring front" in agent.stderr.readline()
    ask(chained[0], times)
    wait_until(lambda: len(Spans(sink).named("front", Span.SPAN_KIND_SERVER)) == times, "the spans", 120)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    (result,) = json.loads(out)["results"]
    found: dict[str, Any] = result
    return found


def test_links_lead_from_the_first_service_to_the_last_and_back(otlp_sink: OtlpSink, tmp_path: Path) -> None:
    with chain(("threads", 0), ("threads", 0), ("threads", WAIT_MS)) as services:
        result = measured(ports(services), "100ms", otlp_sink, tmp_path, times=3)
    found = Spans(otlp_sink)
    for front in found.named("front", Span.SPAN_KIND_SERVER):
        (to_cart,) = found.linked(front, "call")
        assert (to_cart.name, to_cart.kind) == ("cart", Span.SPAN_KIND_CLIENT)
        assert to_cart.trace_id != front.trace_id
        assert found.linked(to_cart, "caller") == [front]
        (to_database,) = found.linked(found.answer(to_cart), "call")
        assert (to_database.name, to_database.kind) == ("database", Span.SPAN_KIND_CLIENT)
        (event,) = (event for event in front.events if event.name == "call")
        assert front.start_time_unix_nano < event.time_unix_nano < front.end_time_unix_nano
        told, attributes = values(event.attributes), values(front.attributes)
        assert told["network.peer.address"] == "127.0.0.1"
        assert told["network.peer.port"] == services[1].port
        assert told["latencyprobe.pair.key"] == to_cart.trace_id.hex()
        assert told["latencyprobe.call.duration"] >= WAIT_MS / 1000
        assert attributes["latencyprobe.calls"] == 1
        assert told["latencyprobe.call.duration"] == attributes["latencyprobe.calls.wait"]
        assert attributes["latencyprobe.calls.wait"] <= attributes["latencyprobe.stage.process"]

    (waited,) = result["waitedFor"]
    assert waited["peer"] == f"127.0.0.1:{services[1].port}"
    assert float(waited["share"]) > 50
    for slow in result["slowest"]:
        (one,) = slow["waitedFor"]
        assert (one["peer"], one["calls"]) == (waited["peer"], 1)
        assert one["traceId"] in {span.trace_id.hex() for span in found.named("cart", Span.SPAN_KIND_CLIENT)}


def test_quick_calls_of_a_slow_request_become_spans_for_it(otlp_sink: OtlpSink, tmp_path: Path) -> None:
    with chain(("threads", 1000), ("threads", 0), ("threads", 0)) as services:
        measured(ports(services), "700ms", otlp_sink, tmp_path, times=2)
    found = Spans(otlp_sink)
    for front in found.named("front", Span.SPAN_KIND_SERVER):
        (to_cart,) = found.linked(front, "call")
        assert values(to_cart.attributes)["latencyprobe.sampled.reason"] == "call"
        assert found.linked(to_cart, "caller") == [front]
        assert not any(span.name == "database" for span in found.all), "nothing slow waited for it"
