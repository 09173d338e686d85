"""Rows tell what held up the containers of an objective: all of the time, and the seconds in which bad ones ended."""

from typing import Any

from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import PressureTime
from latencyprobe_agent.identity.pressure import Reading
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.vocabulary.records import Outcome, Role
from tests.latencyprobe_agent.slicer import NOW, counts_of, make_slicer, objective, only, taken

S = 1_000_000
TOTAL = Reading(0, (), {}, {})
OK = ("outcomes", Outcome.OK)
FAST = ("within", 0)


def stall(container: str = "/a", **us: int) -> Stall:
    return Stall(container, S, us, TOTAL)


def owner(good: int, bad: int = 0) -> dict[Any, int]:
    return {OK: good + bad, FAST: good}


def test_a_second_in_which_a_bad_one_ended_counts_twice_and_one_without_once() -> None:
    slicer = make_slicer(objective())
    slicer.add_pressure(counts_of(owner(5)), {0: stall(throttled=100, io=0)}, NOW)
    slicer.add_pressure(counts_of(owner(9, 1)), {0: stall(throttled=700_000, io=0)}, NOW)
    slicer.add_pressure(counts_of(owner(9, 1)), {0: stall(throttled=20, io=3)}, NOW)
    assert only(slicer).pressure == {
        "throttled": PressureTime(700_120, 3 * S, 700_000, S),
        "io": PressureTime(3, 3 * S, 0, S),
    }


def test_containers_are_added_up_each_with_its_own_bad_seconds() -> None:
    slicer = make_slicer(objective())
    slicer.add_pressure(counts_of(owner(5), owner(5, 1)), {0: stall("/a", io=10), 1: stall("/b", io=30)}, NOW)
    assert only(slicer).pressure == {"io": PressureTime(40, 2 * S, 30, S)}


def test_two_owners_in_one_container_are_one_container() -> None:
    slicer = make_slicer(objective())
    same = stall("/a", io=10)
    slicer.add_pressure(counts_of(owner(5, 1), owner(5)), {0: same, 1: same}, NOW)
    assert only(slicer).pressure == {"io": PressureTime(10, S, 10, S)}


def test_a_kind_that_one_container_does_not_tell_is_of_the_others() -> None:
    slicer = make_slicer(objective())
    stalls = {0: stall("/a", throttled=10), 1: stall("/b", throttled=30, io=5)}
    slicer.add_pressure(counts_of(owner(5), owner(5)), stalls, NOW)
    assert only(slicer).pressure == {"throttled": PressureTime(40, 2 * S), "io": PressureTime(5, S)}


def test_the_other_sides_containers_are_not_the_objectives() -> None:
    slicer = make_slicer(objective(), objective("callers", perspective=Perspective.CLIENT))
    slicer.add_pressure(counts_of(owner(5), role=Role.CLIENT), {0: stall(io=10)}, NOW)
    assert {row.objective: row.pressure for row in taken(slicer)} == {"callers": {"io": PressureTime(10, S)}}


def test_owners_that_come_again_after_they_have_left_the_table_begin_at_0() -> None:
    slicer = make_slicer(objective())
    slicer.add_pressure(counts_of(owner(50, 9)), {}, NOW)
    slicer.add_pressure(counts_of(owner(1)), {0: stall(io=10)}, NOW)
    slicer.add_pressure(counts_of(owner(1, 1)), {0: stall(io=20)}, NOW)
    assert only(slicer).pressure == {"io": PressureTime(30, 2 * S, 20, S)}


def test_without_containers_there_is_nothing_to_tell() -> None:
    slicer = make_slicer(objective())
    slicer.add_pressure(counts_of(owner(5, 5)), {}, NOW)
    assert taken(slicer) == ()
