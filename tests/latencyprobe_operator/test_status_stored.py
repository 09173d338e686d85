"""Statuses as anybody may have left them who may write statuses in his own namespace."""

from typing import Any

import pytest

from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.reconcile import transitions
from latencyprobe_operator.status.registry import Entry
from latencyprobe_operator.status.status import status, why_not_measured
from latencyprobe_operator.status.stored import stored
from tests.support.fuzz import seeded

NOW = "2026-01-01T00:10:00Z"
ODD_TIMES = (  # the API server takes all but the last three for a date-time
    *("2026-01-01t00:00:00z", "0000-01-01T00:00:00Z", "2026-01-01T00:00:00+99:99", "2026-12-31T23:59:60Z"),
    *("2026-01-01T00:00:00", "2026-01-01", ""),
)
FAR_TIMES = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00.123456789Z")


def condition(kind: str, is_so: str, time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    said = {"reason": "NoTraffic", "message": "", "observedGeneration": 1}
    return {"type": kind, "status": is_so, "lastTransitionTime": time, **said}


def whole(time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """What we wrote ourselves."""
    said = (("Accepted", "True"), ("ProbesReady", "True"), ("Measuring", "False"), ("Ready", "True"))
    return {
        "observedGeneration": 1,
        "conditions": [condition(*one, time) for one in said],
        "nodes": "1/1",
        "targets": [{"name": "cart", "pods": 1, "nodes": 1, "agentsReady": 1}],
        "objectives": [{"name": "fast", "state": "Violated", "sli": "90"}],
    }


def made_of(planned: Any, previous: Any) -> dict[str, Any]:
    """The next status, with its events."""
    entry = Entry(planned.probe.uid, 3, probe=planned.probe)
    before = stored(previous)
    found = status(
        entry,
        planned.resolved,
        states=planned.states(1),
        agents=planned.agents,
        figures=[{"objective": "fast", "state": "Met"}],
        previous=before,
        now=NOW,
        placement=Placement(planned.state, "lp-agents", ()),
    )
    transitions(found, before)
    why_not_measured({("shop", "checkout"): before})
    return found


def test_what_we_wrote_is_read_as_it_is() -> None:
    assert stored(whole()) == whole()


@pytest.mark.parametrize("time", ODD_TIMES)
def test_a_condition_of_a_time_that_nobody_can_read_is_made_anew(planned: Any, time: str) -> None:
    planned.report("n1", 0, seen=0)
    assert stored(whole(time))["conditions"] == []
    assert {c["lastTransitionTime"] for c in made_of(planned, whole(time))["conditions"]} == {NOW}


@pytest.mark.parametrize("time", FAR_TIMES)
@pytest.mark.parametrize("other", FAR_TIMES)
def test_times_that_are_far_off_are_compared_like_any(planned: Any, time: str, other: str) -> None:
    planned.report("n1", 0, seen=0)
    document = whole(time)
    document["conditions"][1]["lastTransitionTime"] = other
    assert made_of(planned, document)["conditions"][1]["lastTransitionTime"] == other


def test_an_objective_without_a_state_was_never_judged(planned: Any) -> None:
    assert made_of(planned, {"objectives": [{"name": "fast"}]})["objectives"] == [{"name": "fast", "state": "Met"}]


@pytest.mark.parametrize("nothing", [None, {}, [], "", 7, {"conditions": None}, {"objectives": {"name": "fast"}}])
def test_what_is_no_status_is_none(planned: Any, nothing: Any) -> None:
    assert made_of(planned, nothing)["observedGeneration"] == 3


def test_whatever_a_stored_status_holds_the_next_one_is_made_of_it(planned: Any) -> None:
    cases, fuzz = seeded("OBJECTS", 2_000)
    planned.report("n1", 0, seen=0)
    shape = {key: type(value) for key, value in made_of(planned, whole()).items()}
    for _ in range(cases):
        document = fuzz.mutated(whole(fuzz.one((*ODD_TIMES, *FAR_TIMES, NOW))), [*ODD_TIMES, *FAR_TIMES, whole()])
        assert {key: type(value) for key, value in made_of(planned, document).items()} == shape
