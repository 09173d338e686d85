"""Targets and objectives that come, go and come back for months: what is remembered of them, and what is told then."""

from collections.abc import Mapping
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
from tests.support.otlp import Point, points

POLICY = SpanPolicy(10**9, 0.0, 100)
OFFSET_NS = 10**18  # of `make_turn`


def target(probe: str) -> Target:
    return Target(
        f"d/{probe}/echo", "d", probe, "", "echo", Perspective.SERVER, (5,), 0, POLICY, ports=(80,), clients=True
    )


def of(probe: str, *thresholds_ns: int) -> TargetSet:
    return TargetSet((target(probe).id,), thresholds_ns, 0, POLICY, f"d/{probe}")


class Node:
    """One container, whose exchanges the kernel counts by the number of their target set: `counted`."""

    def __init__(self, make_turn: Any, *, delta: bool) -> None:
        config, self._outbox = Config(metric_interval_s=1.0), FakeOutbox()
        own = SelfMetrics({"metrics": self._outbox}, None, config, standalone=True)
        self.listener = Metrics(self._outbox, own, config, None, start=Now(0, OFFSET_NS), delta=delta)
        self._make_turn, self._owners = make_turn, FakeResources(by_process=True)
        self._in_force = InForce(NodePlan("host", 0, "", (), (), host=True), Rules(), self._owners)
        self.counted: dict[int, int] = {}
        self.at_s = 0

    def follow(
        self, probes: str, sets: Mapping[int, TargetSet], objectives: tuple[PlannedObjective, ...] = ()
    ) -> dict[str, Point]:
        """Put a plan of these LatencyProbes, one letter each, in force, and export."""
        plan = NodePlan("host", 1, "", tuple(map(target, probes)), objectives, host=True)
        self._in_force = InForce(plan, Rules(sets=sets), self._owners)
        return self.export()

    def export(self) -> dict[str, Point]:
        """Let an interval pass; return how many exchanges each LatencyProbe is told to have."""
        self.at_s += 2
        keys, values = np.zeros(len(self.counted), COUNTS_KEY), np.zeros(len(self.counted), COUNTS)
        keys["target_set"], keys["role"], keys["owner"] = list(self.counted), Role.SERVER, 7
        values["outcomes"][:, Outcome.OK] = values["classes"][:, 0] = list(self.counted.values())
        counts = Counts(keys, values)
        snapshot = Snapshot(counts, counts, keys[:0], {})
        self._outbox.bodies.clear()
        self.listener.take(self._make_turn(self._in_force, at_s=self.at_s, counts=snapshot, stats=AgentStats()))
        told = points(self._outbox.bodies).items()
        return {
            dict(at.labels)["latencyprobe.probe"]: point for at, point in told if at.metric == "latencyprobe.exchanges"
        }

    @property
    def remembered(self) -> int:
        return len(self.listener._requests._before)


def test_with_delta_nothing_is_remembered_of_targets_that_no_set_names(make_turn: Any) -> None:
    """LatencyProbes of ever new names, as of previews, of one container that lives on."""
    node, sets, seen = Node(make_turn, delta=True), dict[int, TargetSet](), list[int]()
    for number in range(60):
        probe = chr(ord("A") + number)
        index = 1 + number % 4
        sets[index] = of(probe)
        node.follow(probe, dict(sets))
        node.counted[index] = node.counted.get(index, 0) + 10
        assert node.export()[probe].value == 10
        seen.append(node.remembered)
    assert len(set(seen[10:])) == 1, seen


def test_with_delta_nothing_is_remembered_of_definitions_that_are_no_longer_in_the_plan(make_turn: Any) -> None:
    node, seen = Node(make_turn, delta=True), list[int]()
    for edit in range(20):
        fast = PlannedObjective(
            "d/p/fast", target("p").id, "fast", Perspective.SERVER, 0, True, f"h{edit}", "99", "28d", 1
        )
        node.follow("p", {1: of("p", 5)}, (fast,))
        node.counted[1] = 10 * edit + 10
        assert node.export()["p"].value == 10
        seen.append(node.remembered)
    assert len(set(seen[1:])) == 1, seen


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("gained", [7, 200])
def test_a_target_whose_number_became_another_s_begins_anew_when_it_comes_back(
    make_turn: Any, delta: bool, gained: int
) -> None:
    node = Node(make_turn, delta=delta)
    node.follow("p", {1: of("p")})
    node.counted = {1: 100}
    assert node.export()["p"].value == 100
    node.follow("q", {1: of("q")})
    node.follow("pq", {1: of("q"), 2: of("p")})
    back_unix_ns = OFFSET_NS + node.at_s * 10**9
    node.counted[2] = gained
    told = node.export()["p"]
    assert (told.value, told.start_unix_ns) == (gained, back_unix_ns)


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("gained", [7, 200])
def test_a_target_that_lost_a_part_of_its_total_while_it_was_away_begins_anew_when_it_comes_back(
    make_turn: Any, delta: bool, gained: int
) -> None:
    """It had two sets, and the number of one is another's now."""
    node = Node(make_turn, delta=delta)
    node.follow("p", {1: of("p"), 2: of("p", 5)})
    node.counted = {1: 100, 2: 10}
    assert node.export()["p"].value == 110
    node.follow("q", {1: of("q"), 2: of("p", 5)})
    node.follow("q", {1: of("q"), 2: of("p", 5), 3: of("q", 5)})
    assert "p" not in node.follow("pq", {1: of("q"), 2: of("p", 5), 3: of("q", 5)}), "it has been told"
    back_unix_ns = OFFSET_NS + node.at_s * 10**9
    node.counted[2] += gained
    told = node.export()["p"]
    assert (told.value, told.start_unix_ns) == (gained, back_unix_ns)


def test_with_delta_a_target_that_comes_back_under_its_number_tells_what_it_has_gained(make_turn: Any) -> None:
    node = Node(make_turn, delta=True)
    node.follow("p", {1: of("p")})
    node.counted = {1: 100}
    node.export()
    node.follow("q", {1: of("p"), 2: of("q")})
    node.follow("pq", {1: of("p"), 2: of("q")})
    node.counted[1] += 5
    assert node.export()["p"].value == 5
