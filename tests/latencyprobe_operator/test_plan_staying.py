"""Nodes keep their agent between pods of a CronJob, and no other node keeps one that nothing is asked of."""

from collections.abc import Callable
from typing import Any

import pytest

from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.plan.staying import STAYS_S

JOB = ("shop", "nightly-1")


class World:
    """A target on n1, which a pod of a CronJob on n2 calls."""

    def __init__(self, make: Any) -> None:
        self.make, self.planner = make, Planner(1000)
        self.state: ClusterState = make.state(make.pod("cart-1"), make.pod(JOB[1], node="n2"))
        self.probes: dict[tuple[str, str], LatencyProbe] = {("shop", "checkout"): make.probe()}
        self.nodes_at(0.0)

    def nodes_at(self, now_s: float) -> set[str]:
        for _ in self.planner.work(self.probes, self.state, self.state.take_changes(), now_s):
            pass
        return set(self.planner.nodes)


def test_a_node_whose_last_caller_has_left_keeps_its_agent_for_a_while_with_an_empty_plan(make: Any) -> None:
    world = World(make)
    world.state.drop("pods", JOB)
    assert world.nodes_at(60.0) == {"n1", "n2"}
    assert not world.planner.plan_of("n2").targets
    assert world.planner.staying.next_s == 60.0 + STAYS_S
    assert world.nodes_at(59.0 + STAYS_S) == {"n1", "n2"}
    assert world.nodes_at(60.0 + STAYS_S) == {"n1"}
    assert world.planner.staying.next_s is None


def test_the_time_begins_anew_when_the_next_one_has_left(make: Any) -> None:
    world = World(make)
    for came_s in (0.0, 900.0, 1800.0):
        world.state.put("pods", make.pod(JOB[1], node="n2"))
        assert world.nodes_at(came_s) == {"n1", "n2"}
        assert world.planner.staying.next_s is None
        world.state.drop("pods", JOB)
        world.nodes_at(came_s + 60.0)
    assert world.nodes_at(1859.0 + STAYS_S) == {"n1", "n2"}
    assert world.nodes_at(1860.0 + STAYS_S) == {"n1"}


def target_goes(world: World) -> None:
    world.state.drop("pods", ("shop", "cart-1"))


def is_deleted(world: World) -> None:
    world.probes.clear()


def asks_for_no_callers(world: World) -> None:
    world.probes["shop", "checkout"] = world.make.probe(clients={"scope": "None"})


def is_suspended(world: World) -> None:
    world.probes["shop", "checkout"] = world.make.probe(suspend=True)


def node_goes(world: World) -> None:
    world.state.drop("nodes", ("", "n2"))


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (target_goes, set()),
        (is_deleted, set()),
        (asks_for_no_callers, {"n1"}),
        (is_suspended, set()),
        (node_goes, {"n1"}),
    ],
)
@pytest.mark.parametrize("first", ["the caller", "this"])
def test_where_nothing_is_asked_for_the_agent_goes_at_once(
    make: Any, change: Callable[[World], None], left: set[str], first: str
) -> None:
    world = World(make)
    if first == "the caller":
        world.state.drop("pods", JOB)
        assert world.nodes_at(60.0) == {"n1", "n2"}
    change(world)
    assert world.nodes_at(61.0) == left
    world.state.drop("pods", JOB)
    assert world.nodes_at(62.0) == left


def test_a_node_of_target_pods_does_not_keep_it(make: Any) -> None:
    world = World(make)
    world.state.put("pods", make.pod("cart-2", node="n3"))
    assert world.nodes_at(1.0) == {"n1", "n2", "n3"}
    world.state.drop("pods", ("shop", "cart-2"))
    assert world.nodes_at(2.0) == {"n1", "n2"}
