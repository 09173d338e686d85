"""The agent's own figures: what became of what it exports."""

import pytest

from latencyprobe_agent.config import Config
from latencyprobe_agent.measure.turn import AgentStats
from latencyprobe_agent.telemetry.endpoints import OtlpSignal
from latencyprobe_agent.telemetry.otlp import Answer, FakeTransport
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary import conventions as names
from tests.support.waiting import wait_until


@pytest.mark.parametrize(("signal", "metric"), [("traces", names.SPANS), ("metrics", names.DATA_POINTS)])
def test_what_is_delivered_and_dropped_of_each_signal_is_told(signal: OtlpSignal, metric: names.Metric) -> None:
    collector = FakeTransport(Answer("400", "HTTP 400"))
    outbox = Outbox(collector, signal=signal, collector="http://c", capacity_bytes=1 << 20)
    own = SelfMetrics({signal: outbox}, None, Config(), standalone=True)
    outbox.start()
    outbox.put(b"refused", 4)
    wait_until(lambda: outbox.dropped_items == 4)
    collector.answer = Answer()
    outbox.put(b"taken", 5)
    outbox.stop(60)
    points = own.points(AgentStats(), {}, {})
    assert {(names.OUTCOME, "delivered"): 5, (names.OUTCOME, "dropped"): 4} == {
        point.labels[0]: point.value for point in points if point.metric is metric
    }
