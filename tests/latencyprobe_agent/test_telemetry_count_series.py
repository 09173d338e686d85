"""Counts of more owners than there may be series: `other` is a counter and never falls, whoever ends."""

from typing import Any

import numpy as np
import pytest

from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import COUNTS, NO_COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.telemetry.count_series import CountSeries
from latencyprobe_agent.telemetry.points import Histogram
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (5,), 0, POLICY, ports=(80,))
SETS = {1: TargetSet((ECHO.id,), (5,), 0, POLICY, "d/p")}


def planned(generation: int) -> InForce:
    """A plan whose objective is another one in each generation."""
    fast = PlannedObjective("d/p/fast", ECHO.id, "fast", Perspective.SERVER, 0, True, f"h{generation}", "99", "28d", 1)
    return InForce(NodePlan("n1", generation, "", (ECHO,), (fast,)), Rules(sets=SETS), FakeResources(by_process=True))


class Node:
    """Owners that count, and what is exported of them: exchanges by owner."""

    def __init__(self, cap: int) -> None:
        self.series = CountSeries(cap, 8192)
        self.in_force = planned(1)
        self.series.follow(self.in_force, Now(0, 10**18))

    def read(self, events: dict[int, int], *let_go: int) -> None:
        keys, values = np.zeros(len(events), COUNTS_KEY), np.zeros(len(events), COUNTS)
        keys["target_set"], keys["role"], keys["owner"] = 1, Role.SERVER, list(events)
        values["outcomes"][:, Outcome.OK] = values["within"][:, 0] = values["histogram"][:, 3] = list(events.values())
        gone = np.zeros(len(let_go), COUNTS_KEY)
        gone["target_set"], gone["role"], gone["owner"] = 1, Role.SERVER, let_go
        self.series.add(Snapshot(Counts(keys, values), Counts(keys, values), gone, {}), {})

    def export(self, *ended: int) -> dict[Any, int]:
        found = {}
        for point in self.series.points(self.in_force, set(ended), {}):
            if isinstance(point.value, Histogram):
                found[point.observed] = int(point.value.counts.sum())
        return found

    def good(self) -> dict[Any, int]:
        points = (p for p in self.series.points(self.in_force, set(), {}) if p.metric is names.SLO_EVENTS)
        return {p.observed: int(p.value) for p in points if dict(p.labels)[names.OUTCOME] == "good"}  # type: ignore[arg-type]


@pytest.fixture
def node() -> Node:
    return Node(2)


def test_other_never_falls_when_one_of_it_ends(node: Node) -> None:
    node.read({1: 5, 2: 5, 3: 7, 4: 10})
    assert {1: 5, 2: 5, OTHER_OWNER: 17} == node.export()
    node.read({1: 5, 2: 5, 3: 8, 4: 10})
    assert {1: 5, 2: 5, OTHER_OWNER: 18} == node.export(3)
    node.read({1: 5, 2: 5, 4: 11}, 3)
    assert {1: 5, 2: 5, OTHER_OWNER: 19} == node.export()
    assert 2 == node.series.cap.overflow.total()


def test_other_never_falls_when_somebody_else_makes_room(node: Node) -> None:
    node.read({1: 5, 2: 5, 3: 7})
    node.export()
    node.read({2: 5, 3: 9, 5: 1}, 1)
    assert {2: 5, 5: 1, OTHER_OWNER: 9} == node.export(), "a newcomer has the room"


def test_what_was_counted_between_two_exports_is_in_other_too(node: Node) -> None:
    node.read({1: 5, 2: 5, 3: 7})
    node.export()
    node.read({1: 5, 2: 5, 3: 9})
    node.read({1: 5, 2: 5}, 3)
    assert 9 == node.export()[OTHER_OWNER]


def test_an_owner_that_comes_again_begins_anew(node: Node) -> None:
    node.read({1: 5, 2: 5, 3: 7})
    node.export()
    node.read({1: 5, 2: 5, 3: 2}, 3)
    assert 9 == node.export()[OTHER_OWNER]


def test_an_objective_counts_what_other_gains_from_its_own_start(node: Node) -> None:
    node.read({1: 5, 2: 5, 3: 7})
    assert {1: 5, 2: 5, OTHER_OWNER: 7} == node.good()
    node.in_force = planned(2)
    node.series.follow(node.in_force, Now(10**9, 10**18))
    node.read({1: 6, 2: 5, 3: 9, 4: 1})
    assert {1: 1, 2: 0, OTHER_OWNER: 3} == node.good()


def test_a_number_that_is_used_again_counts_for_its_new_target_alone(node: Node) -> None:
    node.read({1: 5, 2: 5, 3: 7})
    another = Target("e/p/echo", "e", "p", "", "echo", Perspective.SERVER, (5,), 0, POLICY, ports=(80,))
    sets = {1: TargetSet((another.id,), (5,), 0, POLICY, "e/p")}
    node.in_force = InForce(NodePlan("n1", 2, "", (another,), ()), Rules(sets=sets), node.in_force.resources)
    node.series.follow(node.in_force, Now(10**9, 10**18), {1})
    assert {} == node.export()
    node.read({1: 7, 2: 5, 3: 8, 4: 1})
    assert {1: 2, OTHER_OWNER: 2} == node.export()
    node.read({2: 6, 1: 1}, 1)
    assert {1: 1, 2: 1, OTHER_OWNER: 2} == node.export(), "an owner that comes again begins at 0"


def test_keys_of_the_kernels_table_are_told_of_each_namespace(node: Node) -> None:
    node.read({1: 5, 2: 5})
    assert {"d": 0} == node.series.keys(node.in_force)
    node.series.add(Snapshot(NO_COUNTS, NO_COUNTS, np.zeros(0, COUNTS_KEY), {}, held={1: 7, 9: 2}), {})
    assert {"d": 7, "": 2} == node.series.keys(node.in_force)


def test_who_has_left_is_gone_once(node: Node) -> None:
    node.read({1: 5, 2: 5})
    assert set() == node.series.gone()
    node.series.ended(node.in_force.resources)
    node.read({2: 5}, 1)
    assert {1} == node.series.gone()
    node.series.ended(node.in_force.resources)
    assert set() == node.series.gone()
