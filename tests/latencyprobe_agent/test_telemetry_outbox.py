import logging

import pytest

from latencyprobe_agent.telemetry import outbox
from latencyprobe_agent.telemetry.otlp import Answer, FakeTransport
from latencyprobe_agent.telemetry.outbox import Outbox
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
    box.stop(5)
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
    box.stop(5)
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
    box.stop(5)
    assert {body[0] for body in collector.bodies[-2:]} == {8, 9}


def test_a_refused_request_is_dropped_and_the_next_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    collector = FakeTransport(Answer("400", "HTTP 400", retryable=False))
    box = start(collector)
    box.put(b"bad", 4)
    wait_until(lambda: box.dropped_items == 4)
    collector.answer = Answer()
    box.put(b"good", 5)
    wait_until(lambda: box.sent_items == 5)
    box.stop(5)
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
    box.stop(5)
    assert collector.bodies == [b"good"]
    assert (box.sent_items, box.dropped_items, box.errors) == (5, 4, {"ValueError": 1})
    assert "ValueError: the request could not be made" in caplog.text
    assert "secret" not in caplog.text


def test_partial_success_is_counted_and_not_repeated() -> None:
    collector = FakeTransport(Answer(rejected=2))
    box = start(collector)
    box.put(b"x", 5)
    box.stop(5)
    assert (box.sent_items, box.dropped_items, len(collector.bodies)) == (3, 2, 1)


def test_putting_never_waits_for_a_hanging_collector() -> None:
    collector = FakeTransport()
    collector.open.clear()
    box = start(collector, capacity_bytes=1000)
    for _ in range(1000):
        box.put(b"x" * 100, 1)
    assert box.size_bytes <= 1000
    collector.open.set()
    box.stop(5)
    assert box.sent_items + box.dropped_items == 1000


def test_the_end_does_not_wait_for_an_absent_collector() -> None:
    box = start(FakeTransport(AWAY))
    box.put(b"x", 3)
    box.stop(5)
    assert (box.sent_items, box.dropped_items) == (0, 3)
