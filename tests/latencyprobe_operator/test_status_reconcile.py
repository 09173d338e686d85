"""Desired against actual."""

from typing import Any

from latencyprobe_operator.cluster.objects import Node
from latencyprobe_operator.status.conditions import Condition
from latencyprobe_operator.status.reconcile import LabelChange, label_changes, status_writes, transitions, with_times

READY = Condition("Ready", "True", "Ready")


def test_labels_are_set_and_removed_until_exactly_the_expected_nodes_have_them() -> None:
    nodes = {
        "keeps": Node("u1", "keeps", measure=True),
        "gains": Node("u2", "gains"),
        "loses": Node("u3", "loses", measure=True),
        "never": Node("u4", "never"),
    }
    expected = [LabelChange("gains", "u2", True), LabelChange("loses", "u3", False)]
    assert label_changes(frozenset({"keeps", "gains", "vanished"}), nodes) == expected


def test_transition_time_changes_only_with_the_status() -> None:
    first = {"conditions": with_times((READY,), None, 1, "t1")}
    same = {"conditions": with_times((READY._replace(message="more"),), first, 2, "t2")}
    other = {"conditions": with_times((READY._replace(status="False"),), same, 2, "t3")}
    times = [s["conditions"][0]["lastTransitionTime"] for s in (first, same, other)]
    assert times == ["t1", "t1", "t3"]


def test_what_an_agent_reports_is_cut_to_the_limits_of_the_crd() -> None:
    (stored,) = with_times((READY._replace(reason="R" * 100, message="m" * 5000),), None, 1, "t")
    assert (len(stored["reason"]), len(stored["message"])) == (63, 1024)


def test_what_an_agent_reports_steers_no_terminal() -> None:
    (stored,) = with_times((READY._replace(reason="\x1b[31mRed", message="\x9b31m\r\nfine"),), None, 1, "t")
    assert (stored["reason"], stored["message"]) == ("\ufffd[31mRed", "\ufffd31m\ufffd\ufffdfine")


def test_only_statuses_that_differ_are_written() -> None:
    old: dict[Any, Any] = {("shop", "a"): {"nodes": "1/1"}, ("shop", "b"): {"nodes": "1/1"}}
    new = {("shop", "a"): {"nodes": "1/1"}, ("shop", "b"): {"nodes": "0/1"}, ("shop", "c"): {"nodes": "0/0"}}
    assert status_writes(new, old) == [("shop", "b"), ("shop", "c")]


def test_events_are_posted_for_changes_of_ready_and_for_the_begin_of_measuring() -> None:
    def status(*conditions: Condition) -> dict[str, Any]:
        return {"conditions": with_times(conditions, None, 1, "t")}

    waiting = status(Condition("Ready", "Unknown", "AgentStarting"))
    failed = status(Condition("Ready", "False", "AgentMissing", "look there"))
    fine = status(READY, Condition("Measuring", "True", "Measuring"))
    assert transitions(waiting, None) == []
    assert transitions(failed, waiting) == [("Warning", "AgentMissing", "look there")]
    assert transitions(failed, failed) == []
    assert [kind for kind, *_ in transitions(fine, failed)] == ["Normal", "Normal"]


def test_an_objective_that_spends_its_budget_is_worth_a_warning_once() -> None:
    def status(**states: str) -> dict[str, Any]:
        return {"conditions": [], "objectives": [{"name": name, "state": state} for name, state in states.items()]}

    fine, broken = status(fast="Met", calls="Met"), status(fast="Violated", calls="Met")
    (warning,) = transitions(broken, fine)
    assert warning[:2] == ("Warning", "Violated")
    assert "objective fast has spent its error budget" in warning[2]
    assert transitions(broken, broken) == []
    assert transitions(broken, None) == [warning], "an operator that comes back tells what nobody was told"
    assert transitions(status(fast="Incomplete", calls="Met"), broken) == []
    assert transitions(status(fast="AtRisk"), broken) == [
        ("Normal", "BudgetLeft", "objective fast has error budget left again")
    ]
