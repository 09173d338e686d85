import logging
from contextlib import ExitStack

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess as MetricsPartialSuccess,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess as TracePartialSuccess
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from latencyprobe_agent.telemetry import otlp, outbox
from latencyprobe_agent.telemetry.endpoints import OtlpSignal, endpoints
from latencyprobe_agent.telemetry.otlp import Answer, FakeTransport
from latencyprobe_agent.telemetry.outbox import Outbox
from tests.support.otlp import OtlpSink, grpc_collector
from tests.support.waiting import wait_until

AWAY = Answer("ConnectTimeout", "Connection refused", retryable=True)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(outbox, "_LONGEST_RETRY_S", 0.01)


def start(collector: FakeTransport, capacity_bytes: int = 1 << 20) -> Outbox:
    box = Outbox(collector, signal="traces", collector="http://c", capacity_bytes=capacity_bytes)
    box.start()
    return box


def test_requests_arrive_in_order_and_are_counted() -> None:
    collector = FakeTransport()
    box = start(collector)
    for body in (b"1", b"2", b"3"):
        box.put(body, 10)
    box.stop(60)
    assert collector.bodies == [b"1", b"2", b"3"]
    assert (box.sent_items, box.dropped_items, box.size_bytes) == (30, 0, 0)


def test_an_outage_delays_but_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    collector = FakeTransport(AWAY)
    box = start(collector)
    box.put(b"1", 1)
    wait_until(lambda: box.errors["ConnectTimeout"] >= 5)
    box.put(b"2", 1)
    collector.answer = Answer()
    wait_until(lambda: box.sent_items == 2)
    box.stop(60)
    assert box.dropped_items == 0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2, messages
    assert "Connection refused" in messages[0]
    assert "is back" in messages[1]


def test_above_the_capacity_the_oldest_go_and_are_counted() -> None:
    collector = FakeTransport(AWAY)
    box = start(collector, capacity_bytes=100)
    for i in range(10):
        box.put(bytes([i]) * 30, 7)
    assert box.size_bytes <= 100
    assert box.dropped_items == 7 * 7
    collector.answer = Answer()
    wait_until(lambda: box.sent_items == 21)
    box.stop(60)
    assert {body[0] for body in collector.bodies[-2:]} == {8, 9}


def test_who_says_too_much_pushes_out_nobody_who_says_less() -> None:
    """Whatever the collector does meanwhile: one namespace's export may be more than all that can wait."""
    collector = FakeTransport(AWAY)
    box = start(collector, capacity_bytes=1000)
    for export in range(10):
        box.put(b"evil" * 200, 1, ("evil",))
        box.put(b"a few %d" % export, 1, ("shop", "bank"))
    assert box.size_bytes <= 1000
    collector.answer = Answer()
    wait_until(lambda: not box.size_bytes)
    box.stop(60)
    assert [b"a few %d" % export for export in range(10)] == [
        one for one in dict.fromkeys(collector.bodies) if one[0] != 101
    ]


def test_a_refused_request_is_dropped_and_the_next_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    collector = FakeTransport(Answer("400", "HTTP 400", retryable=False))
    box = start(collector)
    box.put(b"bad", 4)
    wait_until(lambda: box.dropped_items == 4)
    collector.answer = Answer()
    box.put(b"good", 5)
    wait_until(lambda: box.sent_items == 5)
    box.stop(60)
    assert box.errors == {"400": 1}
    assert "OTEL_TRACES_EXPORTER=none" in caplog.text


def test_a_request_that_cannot_be_made_is_dropped_and_the_next_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Unusable(FakeTransport):
        def send(self, body: bytes) -> Answer:
            if body == b"bad":
                raise ValueError("Invalid header value b'Basic secret'")
            return super().send(body)

    collector = Unusable()
    box = start(collector)
    box.put(b"bad", 4)
    box.put(b"good", 5)
    box.stop(60)
    assert collector.bodies == [b"good"]
    assert (box.sent_items, box.dropped_items, box.errors) == (5, 4, {"ValueError": 1})
    assert "ValueError: the request could not be made" in caplog.text
    assert "secret" not in caplog.text


def test_partial_success_is_counted_and_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    collector = FakeTransport(Answer(detail="too old", rejected=2))
    box = start(collector)
    box.put(b"x", 5)
    box.stop(60)
    assert (box.sent_items, box.dropped_items, len(collector.bodies)) == (3, 2, 1)
    assert "refused 2 spans of a request: too old" in caplog.text


@pytest.mark.parametrize("answer", [Answer(rejected=1), Answer("400", retryable=False)])
def test_what_a_collector_says_steers_no_terminal_and_is_bounded(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    box = start(FakeTransport(answer._replace(detail="no \x1b[2J\nroom " * 10_000)))
    box.put(b"x", 5)
    box.stop(60)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.isprintable()
    assert "room" in message
    assert len(message) < 1000


@pytest.mark.parametrize("signal", ["traces", "metrics"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize(("said", "rejected"), [(-1, 0), (-(2**63), 0), (5, 5), (6, 5), (2**63 - 1, 5)], ids=str)
def test_whatever_a_collector_says_to_have_rejected_counters_only_grow(
    otlp_sink: OtlpSink, signal: OtlpSignal, protocol: str, said: int, rejected: int
) -> None:
    partial = TracePartialSuccess(rejected_spans=said) if signal == "traces" else None
    body = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    if partial is None:
        points = MetricsPartialSuccess(rejected_data_points=said)
        body = ExportMetricsServiceResponse(partial_success=points).SerializeToString()
    with ExitStack() as collector:
        url = otlp_sink.url if protocol != "grpc" else collector.enter_context(grpc_collector(lambda *_: body))
        otlp_sink.body = body
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        (settings,) = (one for one in endpoints(environ) if one.signal == signal)
        box = Outbox(otlp.transport(settings), signal=signal, collector=url, capacity_bytes=1 << 20)
        box.start()
        seen = []
        for number in (1, 2):
            box.put(b"", 5)
            wait_until(lambda number=number: box.sent_items + box.dropped_items == 5 * number)
            seen.append((box.sent_items, box.dropped_items))
        box.stop(60)
    assert seen == [(5 - rejected, rejected), (10 - 2 * rejected, 2 * rejected)]


def test_putting_never_waits_for_a_hanging_collector() -> None:
    collector = FakeTransport()
    collector.open.clear()
    box = start(collector, capacity_bytes=1000)
    for _ in range(1000):
        box.put(b"x" * 100, 1)
    assert box.size_bytes <= 1000
    collector.open.set()
    box.stop(60)
    assert box.sent_items + box.dropped_items == 1000


def test_the_end_does_not_wait_for_an_absent_collector() -> None:
    box = start(FakeTransport(AWAY))
    box.put(b"x", 3)
    box.stop(60)
    assert (box.sent_items, box.dropped_items) == (0, 3)


@pytest.mark.parametrize("wait_s", [0.0, 60.0], ids=["as it chooses", "as the collector asks"])
def test_the_end_during_a_back_off_tries_once_more(monkeypatch: pytest.MonkeyPatch, wait_s: float) -> None:
    monkeypatch.setattr(outbox, "_FIRST_RETRY_S", 60.0)
    collector = FakeTransport(Answer("503", "HTTP 503", retryable=True, retry_after_s=wait_s))
    box = start(collector)
    box.put(b"before", 3)
    wait_until(lambda: box.errors["503"] == 1)
    collector.answer = Answer()
    box.put(b"last", 4)
    box.stop(60)
    assert (box.sent_items, box.dropped_items) == (7, 0)


def test_the_end_tries_an_absent_collector_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_FIRST_RETRY_S", 60.0)
    collector = FakeTransport(AWAY)
    box = start(collector)
    box.put(b"1", 3)
    wait_until(lambda: box.errors["ConnectTimeout"] == 1)
    box.put(b"2", 4)
    box.stop(60)
    assert (collector.bodies, box.dropped_items) == ([b"1", b"1"], 7)
