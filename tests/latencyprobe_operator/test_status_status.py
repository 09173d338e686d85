"""Statuses: what a person reads in `kubectl get latencyprobe`."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from latencyprobe.errors import SpecError
from latencyprobe.plan import TargetStatus
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.status.conditions import StoreState
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.reconcile import transitions
from latencyprobe_operator.status.registry import Entry
from latencyprobe_operator.status.status import status, why_not_measured

NOW = "2026-01-01T00:00:00Z"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def planned(make: Any) -> Any:
    return make.planned(make.pod("cart-1"), clients={"scope": "None"})


def of(planned: Any, now_s: float, **kw: Any) -> dict[str, Any]:
    entry = Entry(planned.probe.uid, 3, probe=planned.probe)
    given = {"states": planned.states(now_s), "agents": planned.agents, "figures": (), "previous": None, "now": NOW}
    placement = Placement(planned.state, "lp-agents", ())
    return status(entry, planned.resolved, **{**given, "placement": placement, **kw})


def test_conditions_carry_the_generation_and_keep_the_time_of_their_last_transition(planned: Any) -> None:
    first = of(planned, 1)
    planned.report("n1", 5, seen=7)
    second = of(planned, 6, previous=first, now="2026-01-01T00:01:00Z")
    assert {c["observedGeneration"] for c in second["conditions"]} == {3}
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert (times["Accepted"], times["Ready"]) == (NOW, "2026-01-01T00:01:00Z")


def test_invalid_spec_names_the_field(make: Any) -> None:
    entry = Entry("u", 4, error=SpecError("spec.targets[0].ports[0]", "0 is below 1"))
    placement = Placement(make.state(), "lp-agents", ())
    found = status(entry, None, states={}, agents=Agents(), figures=(), previous=None, now=NOW, placement=placement)
    assert found["observedGeneration"] == 4
    assert found["conditions"][0]["reason"] == "InvalidSpec"
    assert "spec.targets[0].ports[0]" in found["conditions"][0]["message"]


def test_figures_and_counts_are_short_strings_and_numbers(planned: Any) -> None:
    planned.report("n1", 5, seen=7)
    results = [
        {"objective": "fast", "state": "Met", "sli": "99.99", "errorBudgetRemaining": "90"},
        {"objective": "faster", "state": "Violated", "sli": "90", "errorBudgetRemaining": "-900"},
    ]
    found = of(planned, 6, figures=results)
    assert (found["nodes"], found["pods"], found["slo"]) == ("1/1", 1, "Violated")
    assert found["targets"] == [{"name": "cart", "pods": 1, "nodes": 1, "agentsReady": 1, "class": "pingpong"}]
    assert found["objectives"][0] == {"name": "fast", "state": "Met", "sli": "99.99", "errorBudgetRemaining": "90"}


def test_a_node_that_measures_others_but_not_this_latencyprobe_yet_is_not_counted(planned: Any) -> None:
    planned.report("n1", 5)
    planned.agents.applied["n1"] = msgspec.structs.replace(planned.planner.plan_of("n1"), targets=())
    found = of(planned, 6)
    assert (found["nodes"], found["targets"][0]["agentsReady"]) == ("0/1", 0)
    planned.report("n1", 7)
    found = of(planned, 8)
    assert (found["nodes"], found["targets"][0]["agentsReady"]) == ("1/1", 1)


def test_whether_rpcs_are_seen_is_said_with_the_reason_why_not(planned: Any) -> None:
    assert "measuring" not in of(planned, 1), "agents still start"
    planned.report("n1", 5, seen=0)
    assert of(planned, 6)["measuring"] == "No: NoTraffic"
    planned.report("n1", 7, seen=7)
    assert of(planned, 8)["measuring"] == "Yes"


def test_why_nothing_is_measured_is_told_of_those_of_which_nothing_is(planned: Any, make: Any) -> None:
    starting = of(planned, 1)
    planned.report("n1", 5, seen=0)
    off = make.planned(make.pod("cart-1"), clients={"scope": "None"}, suspend=True)
    statuses = {"starting": starting, "quiet": of(planned, 6), "off": of(off, 0)}
    found = why_not_measured({("shop", name): one for name, one in statuses.items()})
    assert {name: why.partition(":")[0] for (_, name), why in found.items()} == {
        "starting": "AgentStarting",
        "off": "Suspended",
    }
    assert found["shop", "off"] == "Suspended: spec.suspend is true: set it to false to measure"


def test_budget_is_told_in_words_and_of_too_few_events_not_at_all(planned: Any) -> None:
    def told(state: str, left: str) -> object:
        figures = [{"objective": "fast", "state": state, "errorBudgetRemaining": left}]
        return of(planned, 1, figures=figures).get("budget")

    found = told("Met", "61"), told("Violated", "-14126"), told("NoData", "-99900")
    assert found == ("61 %", "142.3× spent", None)


def test_the_stage_that_burned_the_worst_objective_is_named(planned: Any) -> None:
    planned.report("n1", 5, seen=7)
    stages = [{"stage": "process", "events": 9, "share": "90", "time": "4s"}, {"stage": "send", "events": 1}]
    met, violated = {"objective": "a", "state": "Met"}, {"objective": "b", "state": "Violated", "badByStage": stages}
    assert of(planned, 6, figures=[met, violated])["burnedBy"] == "process"
    assert "burnedBy" not in of(planned, 6, figures=[met])


def test_what_an_agent_calls_a_class_fits_the_crd_and_steers_no_terminal(planned: Any) -> None:
    planned.report("n1", 5, targets=(TargetStatus("shop/checkout/cart", 1, {"\x1b[31m" + "x" * 999: 1}, {}),))
    assert of(planned, 6)["targets"][0]["class"] == "\ufffd[31m" + "x" * 58


def test_objective_that_cannot_be_evaluated_has_a_condition(planned: Any) -> None:
    broken = {"objective": "fast", "state": "Incomplete", "reason": "its counts are broken"}
    planned.report("n1", 5, seen=7)
    found = of(planned, 6, figures=[broken, {"objective": "faster", "state": "Met"}])
    assert (found["slo"], found["conditions"][-1]["type"], found["conditions"][-1]["message"]) == (
        "Incomplete",
        "ObjectiveBroken",
        "fast: its counts are broken",
    )


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (
            StoreState("StoreFull", "sli.db: disk is full: free some space", incomplete="late"),
            ("StoreFull", "True", "StoreFull", "sli.db: disk is full: free some space; counts wait in the agents"),
        ),
        (
            StoreState("StoreFailed", "sli.db: another program's database: give another path", incomplete="late"),
            ("StoreFailed", "True", "StoreFailed", "sli.db: another program's database: give another path; counts"),
        ),
        (
            StoreState(moved="sli.db.damaged-1"),
            ("StoreFailed", "True", "StoreDamaged", "the file of SLI counts was damaged: it is sli.db.damaged-1 now"),
        ),
        (
            StoreState(ephemeral=True),
            ("StoreEphemeral", "True", "StoreEphemeral", "SLI counts are lost when the operator's pod is replaced"),
        ),
        (
            StoreState(shared="http://p:9090: no answer: is it up?", incomplete="late"),
            (
                *("SharedStoreFailed", "True", "SharedStoreFailed"),
                "slo.prometheus.url of the chart: http://p:9090: no answer: is it up?; until it answers, results",
            ),
        ),
    ],
)
def test_trouble_of_the_store_is_told_to_those_who_have_objectives_and_blamed_on_none(
    planned: Any, make: Any, store: StoreState, told: tuple[str, ...]
) -> None:
    late = {"objective": "fast", "state": "Incomplete", "reason": "late"}
    planned.report("n1", 5, seen=7)
    (*others, last) = of(planned, 6, figures=[late] if store.incomplete else [], store=store)["conditions"]
    assert (last["type"], last["status"], last["reason"], last["message"][: len(told[3])]) == told
    assert "ObjectiveBroken" not in {other["type"] for other in others}

    without = make.planned(make.pod("cart-1"), objectives=[], clients={"scope": "None"})
    assert told[0] not in {c["type"] for c in of(without, 6, store=store)["conditions"]}


def test_why_rules_are_not_written_is_told_to_those_who_have_objectives(planned: Any, make: Any) -> None:
    planned.report("n1", 5, seen=7)
    last = of(planned, 6, rules=("NameTaken", "delete it"))["conditions"][-1]
    assert [last[field] for field in ("type", "status", "reason", "message")] == [
        *("RulesNotWritten", "True", "NameTaken", "delete it")
    ]
    assert "RulesNotWritten" not in {c["type"] for c in of(planned, 6)["conditions"]}
    without = make.planned(make.pod("cart-1"), objectives=[], clients={"scope": "None"})
    assert "RulesNotWritten" not in {c["type"] for c in of(without, 6, rules=("NameTaken", ""))["conditions"]}


def test_conditions_have_room_for_all_types() -> None:
    (version,) = yaml.safe_load((ROOT / "crds/latencyprobe.yaml").read_text())["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    files = "".join(path.read_text() for path in (ROOT / "operator/latencyprobe_operator/status").glob("*.py"))
    types = {*re.findall(r'Condition\("(\w+)"', files), "ProtocolUnsupported", "ProtocolMismatch", "StoreFull"}
    assert 17 <= len(types) <= status["properties"]["conditions"]["maxItems"]


def test_largest_status_stays_below_16_kib(make: Any) -> None:
    name = "n" * 63
    targets = [{"name": f"{i:02}{name[2:]}", "ports": [8080]} for i in range(32)]
    planned = make.planned(make.pod("cart-1"), targets=targets, objectives=[], clients={"scope": "None"})
    planned.report("n1", 5, error="e" * 5000, reason="KernelUnsupported")
    result = {"state": "Incomplete", "sli": "99.99999", "errorBudgetRemaining": "-9999.9"}
    found = of(planned, 6, figures=[{"objective": f"{i:02}{name[2:]}", **result} for i in range(32)])
    size = len(json.dumps(found))
    assert size < 16 << 10, f"{size} B"


def test_a_ready_target_without_traffic_for_five_minutes_is_worth_one_warning_also_after_a_restart(
    planned: Any,
) -> None:
    planned.report("n1", 5, seen=0)
    first = of(planned, 6)
    early = of(planned, 6, previous=first, now="2026-01-01T00:04:59Z")
    late = of(planned, 6, previous=early, now="2026-01-01T00:05:00Z")
    later = of(planned, 6, previous=late, now="2026-01-01T00:30:00Z")
    assert transitions(early, first) == []
    (warning,) = transitions(late, early)
    assert warning[:2] == ("Warning", "NoTraffic")
    assert "check ports" in warning[2]
    assert transitions(later, late) == []
    assert later["measuring"] == "No: NoTraffic"
    planned.report("n1", 7, seen=3)
    assert [kind for kind, *_ in transitions(of(planned, 8, previous=later), later)] == ["Normal"]


def test_agents_that_are_not_ready_are_not_said_to_see_nothing_for_long(planned: Any) -> None:
    planned.report("n1", 5, seen=0)
    first = of(planned, 6)
    gone = of(planned, 600, previous=first, now="2026-01-01T00:10:00Z")
    assert transitions(gone, first)[0][0] == "Warning"
    planned.report("n1", 601, seen=0)
    back = of(planned, 602, previous=gone, now="2026-01-01T00:10:10Z")
    assert all(reason != "NoTraffic" for _, reason, _ in transitions(back, gone))
