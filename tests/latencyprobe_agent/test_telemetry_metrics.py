"""Turns become metric requests, once per interval; series of owners that have ended end with their last counts."""

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
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role
from latencyprobe_agent.vocabulary.undelivered import Undelivered
from tests.support.otlp import metrics, points

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
PLAN = NodePlan("host", 1, "", (ECHO,), (), host=True)
RULES = Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")})
AGENT = "latencyprobe-agent"


@pytest.fixture
def outbox() -> FakeOutbox:
    return FakeOutbox()


@pytest.fixture
def listener(outbox: FakeOutbox) -> Metrics:
    config = Config(metric_interval_s=1.0)
    own = SelfMetrics({"metrics": outbox}, None, config, standalone=True)
    return Metrics(outbox, own, config, None, start=Now(0, 0), delta=False)


def services(outbox: FakeOutbox) -> list[set[str]]:
    """Return the service names in each request."""
    return [{resource["service.name"] for resource, _ in metrics([body])} for body in outbox.bodies]


def snapshot(**events: int) -> Snapshot:
    """Events by owner: `_7=3`."""
    keys, values = np.zeros(len(events), COUNTS_KEY), np.zeros(len(events), COUNTS)
    keys["target_set"], keys["role"] = 1, Role.SERVER
    keys["owner"] = [int(owner[1:]) for owner in events]
    values["outcomes"][:, Outcome.OK] = list(events.values())
    return Snapshot(Counts(keys, values), Counts(keys, values), keys[:0], {})


def test_an_owner_that_has_ended_is_exported_until_its_last_counts_are_out(
    listener: Metrics, outbox: FakeOutbox, make_turn: Any
) -> None:
    owners = FakeResources(by_process=True)
    in_force = InForce(PLAN, RULES, owners)
    for second, counts in enumerate([snapshot(_7=3, _8=1), snapshot(_7=5, _8=1), snapshot(_7=5, _8=1)], start=1):
        listener.take(make_turn(in_force, at_s=second, counts=counts, stats=AgentStats()))
        owners.gone = {7}
    assert services(outbox) == [{"service-7", "service-8", AGENT}] * 2 + [{"service-8", AGENT}]


def test_between_two_intervals_nothing_is_exported_and_at_the_end_everything(
    listener: Metrics, outbox: FakeOutbox, make_turn: Any
) -> None:
    in_force = InForce(PLAN, RULES, FakeResources(by_process=True))
    listener.take(make_turn(in_force, {"role": Role.SERVER, "writer_tgid": 7}, at_s=0.1))
    listener.take(make_turn(in_force, at_s=0.5, counts=snapshot(_7=1), stats=AgentStats()))
    assert outbox.bodies == []
    listener.close()
    assert services(outbox) == [{"service-7", AGENT}]


def test_a_part_that_fails_is_counted_by_its_name(listener: Metrics, outbox: FakeOutbox, make_turn: Any) -> None:
    stats = AgentStats(failures={"spans": 3})
    listener.take(
        make_turn(InForce(PLAN, RULES, FakeResources(by_process=True)), at_s=1, counts=snapshot(), stats=stats)
    )
    found = {series[1:]: point.value for series, point in points(outbox.bodies).items()}
    assert found["latencyprobe.agent.failures", (("latencyprobe.part", "spans"),)] == 3


def test_rows_that_wait_or_that_nobody_gets_are_told(outbox: FakeOutbox, make_turn: Any) -> None:
    left = Undelivered(7, {"too_old": 2, "refused": 1})
    config = Config(metric_interval_s=1.0)
    own = SelfMetrics({"metrics": outbox}, None, config, standalone=False, undelivered=lambda: left)
    listener = Metrics(outbox, own, config, None, start=Now(0, 0), delta=False)
    in_force = InForce(PLAN, RULES, FakeResources(by_process=True))
    listener.take(make_turn(in_force, at_s=1, counts=snapshot(), stats=AgentStats()))
    found = {series[1:]: point.value for series, point in points(outbox.bodies).items()}
    waiting = [metric.gauge for _, metric in metrics(outbox.bodies) if metric.name.endswith("sli_rows.waiting")]
    assert [7] == [gauge.data_points[0].as_int for gauge in waiting]
    for reason, count in left.dropped.items():
        assert found["latencyprobe.agent.sli_rows.dropped", (("latencyprobe.reason", reason),)] == count
