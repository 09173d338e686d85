"""The time that should have been measured."""

from typing import Any

from latencyprobe_operator.plan.agents import STARTING_S, Agents, NodeState
from latencyprobe_operator.plan.derived import Derived
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.plan.targets import finished
from latencyprobe_operator.reports.expected import LAG_S, ExpectedTime, missing_nodes, objective_keys

MINUTE = 1_700_000_040  # a multiple of 60


def planned(make: Any, *pods: Any) -> tuple[Planner, Agents]:
    planner, agents, state = Planner(1000), Agents(), make.state(*pods)
    probe = make.probe(clients={"scope": "None"})
    changed = planner.update({("shop", "checkout"): probe}, state, state.take_changes())
    agents.planned(changed, planner.nodes, 0.0)
    return planner, agents


def observed(planner: Planner, agents: Agents, since_s: int, until_s: int, step_s: int = 1) -> dict[int, int]:
    """Expected ms by minute (from 0) of the one objective, when time runs from `since_s` to `until_s`."""
    expected = ExpectedTime()
    for now in range(since_s, until_s + 1, step_s):
        finished(expected.observe(planner.plans, agents, now, MINUTE + now))
    finished(expected.finish(MINUTE + until_s + 65 + LAG_S, 5))
    return {(minute - MINUTE) // 60: ms for _, minute, ms in expected.waiting.some()}


def reported(make: Any, planner: Planner, agents: Agents, node: str, now_s: float) -> None:
    plan = planner.plan_of(node)
    agents.reported(node, make.status(plan.generation), plan, now_s)


def test_nodes_that_measure_are_added_up_by_minute(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"), make.pod("cart-2", node="n2"))
    for node in ("n1", "n2"):
        reported(make, planner, agents, node, 0)
    assert observed(planner, agents, 30, 90) == {0: 60_000, 1: 60_000}


def test_starting_is_no_gap_but_an_agent_that_never_comes_is(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"))
    assert observed(planner, agents, 0, 120) == {1: 60_000}
    assert STARTING_S == 60


def test_time_before_an_agent_was_ready_is_no_gap_however_seldom_we_look(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"))
    reported(make, planner, agents, "n1", 7)
    assert observed(planner, agents, 0, 60, step_s=10) == {0: 53_000}


def test_agent_that_died_is_still_expected(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"))
    reported(make, planner, agents, "n1", 0)
    assert observed(planner, agents, 0, 120) == {0: 60_000, 1: 60_000}


def test_pause_of_our_own_is_not_held_against_the_agents(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"))
    reported(make, planner, agents, "n1", 0)
    assert sum(observed(planner, agents, 0, 6000, step_s=3000).values()) == 2 * 30_000


def test_minute_is_handed_out_once_and_only_when_its_counts_are_here(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"))
    reported(make, planner, agents, "n1", 0)
    expected = ExpectedTime()
    for now in range(61):
        finished(expected.observe(planner.plans, agents, now, MINUTE + now))
    finished(expected.finish(MINUTE + 80 + LAG_S - 1, 20))
    assert len(expected.waiting) == 0
    for _ in range(2):
        finished(expected.finish(MINUTE + 80 + LAG_S, 20))
        assert [(minute, ms) for _, minute, ms in expected.waiting.some()] == [(MINUTE, 60_000)]


def test_what_an_observation_adds_follows_nodes_and_not_objectives(make: Any) -> None:
    planner, agents = planned(make, make.pod("cart-1"), make.pod("cart-2", node="n2"))
    expected, looked_at = ExpectedTime(), []
    expected._keys = Derived(lambda plan: looked_at.append(plan.node) or objective_keys(plan))  # type: ignore[func-returns-value]
    for now in range(60, 120):
        finished(expected.observe(planner.plans, agents, now, MINUTE + now))
    assert ["n1", "n2"] == sorted(looked_at)
    one, other = map(expected._keys.of, planner.plans.values())
    assert one[0] is other[0], "nodes share the keys of objectives"


def test_nodes_that_are_silent_or_failed_are_missing(make: Any) -> None:
    planner, _ = planned(make, make.pod("cart-1"), make.pod("cart-2", node="n2"), make.pod("cart-3", node="n3"))
    states = {"n1": NodeState.READY, "n2": NodeState.MISSING, "n3": NodeState.FAILED}
    assert list(missing_nodes(planner.plans, states).values()) == [2]
