"""What agents reported, and what follows from it."""

from typing import Any

import msgspec
import pytest

from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.wire import STATUS_S
from latencyprobe_operator.plan.agents import APPLYING_S, MISSED, STARTING_S, Agents, NodeState

FRESH_S = MISSED * STATUS_S


@pytest.fixture
def planned(make: Any) -> Any:
    return make.planned(make.pod("cart-1"), make.pod("web-1", node="n2"))


def state(planned: Any, now_s: float, node: str = "n1") -> NodeState:
    return planned.states(now_s)[node]


def test_node_is_starting_until_its_agent_had_the_time_to_come(planned: Any) -> None:
    assert [state(planned, now_s) for now_s in (0, STARTING_S - 1, STARTING_S)] == [
        NodeState.STARTING,
        NodeState.STARTING,
        NodeState.MISSING,
    ]


def test_agent_is_ready_with_its_plan_and_missing_when_it_falls_silent(planned: Any) -> None:
    planned.report("n1", 5)
    assert [state(planned, now_s) for now_s in (6, 5 + FRESH_S, 6 + FRESH_S)] == [
        NodeState.READY,
        NodeState.READY,
        NodeState.MISSING,
    ]


def test_agent_is_silent_by_the_longer_of_the_pauses_that_it_was_told_of(make: Any) -> None:
    """As a cluster grows, it may have been told of the longer one since; as one shrinks, not yet of the shorter one."""
    pause_s, plan = [STATUS_S], NodePlan("n1", 1, "digest", (), ())
    agents = Agents(lambda: pause_s[0])

    def silent_after_s() -> float:
        agents.reported("n1", make.status(1), plan, 0.0)
        now_s = next(s for s in range(1, 1_000) if agents.state("n1", plan, s) is not NodeState.READY)
        return now_s - 1

    assert silent_after_s() == MISSED * STATUS_S
    agents.reported("n1", make.status(1), plan, 0.0)
    pause_s[0] = 60.0
    assert agents.state("n1", plan, MISSED * 60.0) is NodeState.READY
    assert silent_after_s() == MISSED * 60.0
    agents.reported("n1", make.status(1), plan, 0.0)
    pause_s[0] = STATUS_S
    assert agents.state("n1", plan, MISSED * 60.0) is NodeState.READY
    assert agents.state("n1", plan, MISSED * 60.0 + 1) is NodeState.MISSING


def test_agent_that_reports_an_error_has_failed_until_it_is_well(planned: Any) -> None:
    planned.report("n2", 5)
    planned.report("n2", 6, error="no BTF", reason="KernelUnsupported")
    assert state(planned, 7, "n2") is NodeState.FAILED
    planned.report("n2", 8)
    assert state(planned, 9, "n2") is NodeState.READY


def test_callers_that_are_measured_for_other_targets_than_before_are_named(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), make.pod("web-1", node="n2", addresses=("10.0.0.7",)))
    plan = planned.planner.plan_of("n2")
    reported = planned.agents.reported
    assert reported("n2", make.status(plan.generation), plan, 1.0) == {"10.0.0.7"}
    assert reported("n2", make.status(plan.generation), plan, 2.0) == frozenset()
    assert reported("n2", make.status(plan.generation, error="no BTF"), plan, 3.0) == frozenset()
    assert reported("n2", make.status(plan.generation), plan, 4.0) == frozenset(), "nor does the end of an error"
    alone = make.status(plan.generation, safe_mode="it crashed twice")
    assert [reported("n2", alone, plan, at_s) for at_s in (4.0, 4.1)] == [{"10.0.0.7"}, frozenset()]
    assert reported("n2", make.status(plan.generation), plan, 4.2) == {"10.0.0.7"}, "safe mode has ended"
    empty = msgspec.structs.replace(plan, generation=plan.generation + 1, targets=())
    assert reported("n2", make.status(empty.generation), empty, 5.0) == {"10.0.0.7"}


def test_plans_that_change_faster_than_agents_report_are_applied_all_the_same(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), make.pod("web-1", node="n2"))
    agents, plans = planned.agents, [planned.planner.plan_of("n2")]
    for number in range(6):
        planned.planner.use_pair_key(bytes([number]) * 32)
        planned.plan(planned.probe)
        plans.append(planned.planner.plan_of("n2"))
        agents.reported("n2", make.status(plans[-2].generation), plans[-1], number)  # always the one before
        assert plans[:-1].index(agents.applied["n2"]) >= number - 1 if number else "n2" not in agents.applied
    agents.reported("n2", make.status(plans[-1].generation), plans[-1], 7.0)
    assert agents.applied["n2"] is plans[-1]


def test_new_plan_has_a_moment_to_arrive(planned: Any) -> None:
    planned.report("n1", 5)
    planned.planner.use_pair_key(b"n" * 32)
    changed = planned.plan(planned.probe)
    planned.agents.planned(changed, planned.planner.nodes, 10)
    assert [state(planned, now_s) for now_s in (11, 10 + APPLYING_S)] == [NodeState.READY, NodeState.STARTING]


def test_silence_is_a_gap_from_when_the_agent_was_ready_or_had_had_the_time_to_be(planned: Any) -> None:
    planned.report("n1", 5)
    planned.report("n1", 20)
    assert [planned.agents.counts_since(node) for node in ("n1", "n2")] == [5, STARTING_S]
    assert planned.agents.counts_since("elsewhere") == float("inf")


def test_refusal_is_forgotten_with_the_next_report(planned: Any) -> None:
    planned.agents.refused("n1", "the token belongs to node n2")
    planned.report("n1", 5)
    assert planned.agents.refusals == {}


def test_what_an_agent_measures_is_what_it_has_applied(planned: Any) -> None:
    planned.report("n2", 5)
    assert [planned.agents.measures("n2", targets) for targets in (["shop/checkout/cart"], ["shop/other/cart"])] == [
        True,
        False,
    ]


def test_node_that_need_not_measure_any_more_is_forgotten(planned: Any) -> None:
    planned.report("n1", 5)
    planned.agents.refused("n2", "no token")
    planned.agents.planned(planned.plan(), frozenset(), 5 + FRESH_S + 1)
    planned.agents.planned(frozenset(), frozenset(), 5 + FRESH_S + 2)
    agents = planned.agents
    assert (agents.of, agents.applied, agents.refusals, agents.counts_since("n1")) == ({}, {}, {}, float("inf"))


def test_agents_that_report_more_than_that_all_is_well_are_known_for_as_long_as_they_do(planned: Any) -> None:
    planned.report("n1", 5)
    planned.report("n2", 5)
    assert planned.agents.remarkable == set()
    remarks: tuple[dict[str, Any], ...] = (
        {"failing": {"spans": "ValueError"}},
        {"safe_mode": "it crashed twice"},
        {"spans_limited": ("shop/checkout",)},
        {"untold": {"shop": 3}},
        {"refused": {"tcprt": "this kernel gives no way to see it"}},
        {"loading": ("tcprt",)},
        {"variants": {"pressure.cpu": "unsupported"}},
    )
    always = {"instance", "boot_id", "version", "generation", "error", "reason", "targets", "lost", "spans_per_second"}
    assert {name for said in remarks for name in said} == {*AgentStatus.__struct_fields__} - always
    for said in remarks:
        planned.report("n1", 6, **said)
        assert planned.agents.remarkable == {"n1"}, said
        planned.report("n1", 7)
        assert planned.agents.remarkable == set()
    planned.report("n2", 8, safe_mode="it crashed twice")
    planned.agents.planned(frozenset(), frozenset({"n1"}), 9 + FRESH_S)
    assert planned.agents.remarkable == set()
