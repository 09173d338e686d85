"""A wall clock that steps back: no point counts from later than its time, and what was counted counts once."""

from typing import Any

import numpy as np
import pytest

from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role
from tests.support.otlp import points

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (5,), 0, POLICY, ports=(80,), clients=True)
FAST = PlannedObjective("d/p/fast", ECHO.id, "fast", Perspective.SERVER, 0, True, "h", "99", "28d", 1)
RULES = Rules(sets={1: TargetSet((ECHO.id,), (5,), 0, POLICY, "d/p")})
S = 10**9
EVENTS = "latencyprobe.slo.events"


def snapshot(events: int) -> Snapshot:
    keys, values = np.zeros(1, COUNTS_KEY), np.zeros(1, COUNTS)
    keys["target_set"], keys["role"], keys["owner"] = 1, Role.SERVER, 7
    values["outcomes"][:, Outcome.OK] = values["classes"][:, 0] = values["within"][:, 0] = events
    return Snapshot(Counts(keys, values), Counts(keys, values), keys[:0], {})


@pytest.mark.parametrize("delta", [False, True])
def test_no_point_counts_from_later_than_its_time_when_the_wall_clock_steps_back(make_turn: Any, delta: bool) -> None:
    outbox, config, resources = FakeOutbox(), Config(metric_interval_s=1.0), FakeResources(by_process=True)
    own = SelfMetrics({"metrics": outbox}, None, config, standalone=True)
    listener = Metrics(outbox, own, config, None, start=Now(0, 10**18), delta=delta)
    before, after = (
        InForce(NodePlan("host", 1, "", (ECHO,), objectives, host=True), RULES, resources)
        for objectives in ((), (FAST,))
    )
    ahead, right = 10**18, 10**18 - 3600 * S
    found: list[tuple[int, float]] = []
    plans = [(before, ahead), (after, ahead), (after, ahead), (after, right), (after, right)]
    for second, (in_force, offset_ns) in enumerate(plans, start=1):
        turn = make_turn(in_force, counts=snapshot(10 * second), stats=AgentStats())
        listener.take(turn._replace(now=Now(second * S, second * S + offset_ns)))
        told = points(outbox.bodies)
        outbox.bodies.clear()
        assert max(point.start_unix_ns for point in told.values()) <= second * S + offset_ns
        found += [(p.start_unix_ns, p.value) for series, p in told.items() if series.metric == EVENTS and p.value]
    starts, values = zip(*found, strict=True)
    assert values == ((10, 10, 10, 10) if delta else (10, 20, 30, 40))
    assert delta or starts == (*[2 * S + ahead] * 2, *[4 * S + right] * 2)
