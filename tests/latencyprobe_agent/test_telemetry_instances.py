"""A container that is started again tells nothing before the last counts of the one before are out."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from latencyprobe.plan import Container, NodePlan, Pod, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.resources import PodResources
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EVIDENCE_COUNTS, Outcome, Role
from tests.support.otlp import points

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,))
RULES = Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")})
SENT_AGAIN = "latencyprobe.tcp.retransmits"
EXCHANGES = "latencyprobe.exchanges"


def container(owner: int) -> str:
    return f"{owner:064x}"


class Restarting:
    """A pod whose container is started again and again: each time another cgroup, 7, 8 and so on."""

    def __init__(self, make_turn: Any, *, delta: bool = False) -> None:
        self.outbox, self._make_turn, self._delta = FakeOutbox(), make_turn, delta
        config = Config(metric_interval_s=1.0)
        own = SelfMetrics({"metrics": self.outbox}, None, config, standalone=False)
        self.listener = Metrics(self.outbox, own, config, None, start=Now(0, 0), delta=delta)
        self._resources: PodResources | None = None
        self._at_s = 0

    def export(
        self, running: int, counts: dict[int, int], resent: dict[int, int] | None = None
    ) -> list[tuple[str, int, float]]:
        """`running`: the container; `counts`: exchanges by owner, `resent`: segments. Return (metric, owner, value)."""
        pod = Pod("uid-1", "d", "echo-0", (), (Container("echo", container(running)),), {"service.name": "echo"})
        plan = NodePlan("n1", 1, "", (ECHO,), (), pods=(pod,))
        self._resources = PodResources(plan, {running: Cgroup("uid-1", container(running))}, self._resources)
        self._at_s += 1
        keys, values = np.zeros(len(counts), COUNTS_KEY), np.zeros(len(counts), COUNTS)
        keys["target_set"], keys["role"], keys["owner"] = 1, Role.SERVER, list(counts)
        values["outcomes"][:, Outcome.OK] = values["classes"][:, 0] = list(counts.values())
        gained = []
        for owner, segments in (resent or {}).items():
            more = np.zeros(1, EVIDENCE_COUNTS)
            more["segs_unrecorded"] = segments
            gained.append(Gained(RETRANSMITS, np.array([(owner, 1, Role.SERVER)], COUNTS_KEY), more))
        turn = self._make_turn(
            InForce(plan, RULES, self._resources),
            at_s=self._at_s,
            counts=Snapshot(Counts(keys, values), Counts(keys, values), keys[:0], {}),
            stats=AgentStats(),
            gained=tuple(gained),
        )
        self.listener.take(turn)
        return self.told()

    def told(self) -> list[tuple[str, int, float]]:
        """What the latest request has; a series of Prometheus' identity once at most, unless these are differences."""
        found, alike = [], Counter[tuple[object, ...]]()
        for series, point in points(self.outbox.bodies[-1:]).items():
            resource = dict(series.resource)
            alike[resource["service.name"], resource["service.instance.id"], series.metric, series.labels] += 1
            if series.metric in (SENT_AGAIN, EXCHANGES):
                found.append((series.metric, int(resource["container.id"], 16), point.value))
        assert self._delta or {1} == set(alike.values())
        return sorted(found)


def test_a_container_that_is_started_again_is_told_after_the_last_counts_of_the_one_before(make_turn: Any) -> None:
    pod = Restarting(make_turn)
    assert [(EXCHANGES, 7, 3)] == pod.export(7, {7: 3}, {7: 1})[:1]
    assert [(EXCHANGES, 7, 5), (SENT_AGAIN, 7, 1)] == pod.export(8, {7: 5, 8: 1}, {8: 4})
    assert [(EXCHANGES, 8, 2), (SENT_AGAIN, 8, 4)] == pod.export(8, {7: 5, 8: 2})


def test_each_of_a_container_that_fails_again_and_again_tells_its_last_counts(make_turn: Any) -> None:
    pod = Restarting(make_turn)
    pod.export(7, {7: 3})
    assert [(EXCHANGES, 7, 5)] == pod.export(8, {7: 5, 8: 1})
    assert [(EXCHANGES, 8, 2), (SENT_AGAIN, 8, 6)] == pod.export(9, {7: 5, 8: 2, 9: 1}, {8: 6})
    assert [(EXCHANGES, 9, 1)] == pod.export(9, {7: 5, 8: 2, 9: 1})


def test_two_that_ended_since_the_last_export_are_told_one_after_the_other(make_turn: Any) -> None:
    pod = Restarting(make_turn)
    pod.export(7, {7: 3})
    pod.export(8, {7: 3, 8: 1})
    counts = {7: 4, 8: 2, 9: 1}  # of the first something was counted late
    assert [[(EXCHANGES, owner, counts[owner])] for owner in counts] == [pod.export(9, counts) for _ in counts]


def test_one_that_only_sent_again_tells_it_too(make_turn: Any) -> None:
    pod = Restarting(make_turn)
    pod.export(7, {7: 3})
    pod.export(8, {7: 5}, {8: 6})
    assert [(SENT_AGAIN, 8, 6)] == pod.export(9, {7: 5})


@pytest.mark.parametrize("delta", [False, True])
def test_at_the_end_and_of_differences_nobody_waits(make_turn: Any, delta: bool) -> None:
    pod = Restarting(make_turn, delta=delta)
    pod.export(7, {7: 3})
    told = pod.export(8, {7: 5, 8: 1})
    assert [(EXCHANGES, 7, 2), (EXCHANGES, 8, 1)] == told if delta else [(EXCHANGES, 7, 5)] == told
    pod.listener.close()
    assert (EXCHANGES, 8, 0 if delta else 1) in pod.told()
