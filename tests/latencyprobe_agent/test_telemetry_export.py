"""What sends telemetry is there as endpoints ask for it, and works together; to a real sink."""

from typing import Any

import numpy as np
import pytest

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce
from latencyprobe_agent.telemetry.endpoints import endpoints
from latencyprobe_agent.telemetry.export import Exporters
from latencyprobe_agent.telemetry.span_evidence import Names
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Role
from latencyprobe_agent.vocabulary.undelivered import Undelivered
from tests.support.otlp import OtlpSink, metrics

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
IN_FORCE = InForce(
    NodePlan("host", 1, "", (ECHO,), (), host=True),
    Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")}),
    FakeResources(by_process=True),
)
ONE = np.array([(7, 1, Role.SERVER)], [("owner", "u8"), ("target_set", "u4"), ("role", "u1")]).astype(COUNTS_KEY)


@pytest.mark.parametrize(("without", "exemplars"), [("traces", 0), ("logs", 1)])
def test_exemplars_are_exported_only_where_spans_are(
    make_turn: Any, otlp_sink: OtlpSink, without: str, exemplars: int
) -> None:
    of_one = Counts(ONE, np.ones(1, COUNTS))
    turn = make_turn(
        *(IN_FORCE, {"role": Role.SERVER, "writer_tgid": 7}),
        at_s=1,
        sampled=True,
        stats=AgentStats(),
        counts=Snapshot(of_one, of_one, ONE[:0], {}),
    )
    with Exporters(
        *(endpoints({f"OTEL_{without.upper()}_EXPORTER": "none"}, otlp_sink.url), Config(metric_interval_s=1.0)),
        *(None, Now(0, 10**18)),
        delta=False,
        shared_key=False,
        stop_timeout_s=5.0,
        naming=Names(),
        undelivered=Undelivered,
    ) as exporters:
        for listener in exporters.listeners:
            listener.take(turn)
    found = [metric for _, metric in metrics(otlp_sink.bodies("metrics")) if metric.name == names.SERVER_DURATION.name]
    assert [exemplars] == [len(metric.exponential_histogram.data_points[0].exemplars) for metric in found]
