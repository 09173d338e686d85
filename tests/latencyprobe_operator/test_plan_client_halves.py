"""Whose client halves are measured, and for which targets."""

from typing import Any

import pytest
from msgspec.structs import replace

from latencyprobe.wire import STATUS_S
from latencyprobe_operator.plan import client_halves as client_halves_
from latencyprobe_operator.plan.agents import MISSED
from latencyprobe_operator.plan.client_halves import LOOK_S, NAMED, ClientHalves

WEB = "uid-shop-web-1"
CART = "shop/checkout/cart"


@pytest.fixture
def planned(make: Any) -> Any:
    return make.planned(make.pod("cart-1"), make.pod("web-1", node="n2"))


def test_what_is_measured_is_what_the_agent_has_applied(planned: Any) -> None:
    halves = ClientHalves(planned.planner, planned.agents)
    assert (halves.measured("n2", WEB), halves.awaited("n2", WEB)) == ((), True)
    planned.report("n2", 5)
    assert (halves.measured("n2", WEB), halves.awaited("n2", WEB)) == ((CART,), False)
    assert (halves.measured("n1", WEB), halves.awaited("n1", WEB)) == ((), False)
    planned.plan()
    assert halves.measured("n2", WEB) == (CART,), "until the agent follows"
    planned.report("n2", 6)
    assert halves.measured("n2", WEB) == ()


def test_agent_that_reports_an_error_measures_nothing_until_it_is_well(planned: Any) -> None:
    halves = ClientHalves(planned.planner, planned.agents)
    planned.report("n2", 5)
    planned.report("n2", 6, error="no BTF", reason="KernelUnsupported")
    assert (halves.measured("n2", WEB), halves.awaited("n2", WEB)) == ((), True)
    planned.report("n2", 8)
    assert halves.measured("n2", WEB) == (CART,)


def test_agent_that_is_silent_measures_nothing_until_it_reports_and_its_callers_are_named_once(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), make.pod("web-1", node="n2", addresses=("10.0.0.7",)))
    halves, silent_s = ClientHalves(planned.planner, planned.agents), 5 + MISSED * STATUS_S
    planned.report("n2", 5)
    assert halves.fallen_silent(silent_s) == {}
    assert halves.measured("n2", WEB) == (CART,)
    assert halves.fallen_silent(silent_s + LOOK_S) == {"n2": {"10.0.0.7"}}
    assert (halves.measured("n2", WEB), halves.awaited("n2", WEB)) == ((), True), "it may be back at any time"
    assert halves.fallen_silent(silent_s + 2 * LOOK_S) == {}, "they are known"
    planned.report("n2", silent_s + 60)
    assert halves.measured("n2", WEB) == (CART,)
    assert halves.fallen_silent(2 * silent_s + 60) == {"n2": {"10.0.0.7"}}, "again"


def test_of_a_zone_that_falls_silent_some_are_looked_at_at_once(make: Any) -> None:
    pods = [make.pod(f"web-{i}", node=f"n{i}") for i in range(25)]
    planned = make.planned(make.pod("cart-1"), *pods)
    halves = ClientHalves(planned.planner, planned.agents)
    for pod in pods:
        planned.report(pod.node, 5)
    found = [halves.fallen_silent(3600) for _ in range(4)]
    assert [len(some) for some in found] == [10, 10, 5, 0]
    assert {node for some in found for node in some} == {pod.node for pod in pods}


def test_agent_in_safe_mode_measures_nothing_for_spans_and_is_not_awaited(planned: Any) -> None:
    halves = ClientHalves(planned.planner, planned.agents)
    planned.report("n2", 5, safe_mode="it crashed twice")
    assert (halves.measured("n2", WEB), halves.awaited("n2", WEB)) == ((), False), "who asked is told when it ends"
    planned.report("n2", 6)
    assert halves.measured("n2", WEB) == (CART,)


def test_a_plan_is_looked_through_once_however_often_it_is_asked_about(
    planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looked_through = client_halves_._by_caller, []
    monkeypatch.setattr(client_halves_, "_by_caller", lambda plan: looked_through.append(plan) or real(plan))
    halves = ClientHalves(planned.planner, planned.agents)
    planned.report("n2", 5)
    for _ in range(100):
        assert halves.measured("n2", WEB), halves.awaited("n2", WEB)
    assert len(looked_through) == 1


def test_of_many_targets_those_are_named_that_the_node_that_asks_serves_and_no_more_than_a_few(planned: Any) -> None:
    planned.report("n2", 5)
    halves = ClientHalves(planned.planner, planned.agents)
    plans, applied = planned.planner.plans, planned.agents.applied
    (target,) = applied["n2"].targets
    applied["n2"] = replace(applied["n2"], targets=tuple(replace(target, id=f"t{i}") for i in range(1_000)))
    (served,) = plans["n1"].targets
    plans["n1"] = replace(plans["n1"], targets=(replace(served, id="t7"), replace(served, id="t8", pods=())))
    assert halves.named("n1", "n2", WEB) == ("t7",)
    assert halves.named("n3", "n2", WEB) == ()
    plans["n1"] = replace(plans["n1"], targets=tuple(replace(served, id=f"t{i}") for i in range(1_000)))
    assert len(halves.named("n1", "n2", WEB)) == NAMED
    applied["n2"] = replace(applied["n2"], targets=(target,))
    assert halves.named("n3", "n2", WEB) == (CART,), "few are told to everybody"
