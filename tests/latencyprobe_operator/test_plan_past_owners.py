"""Who had an address until lately: known for sure, or not at all."""

from typing import Any

import pytest

from latencyprobe_operator.cluster.state import Left
from latencyprobe_operator.plan import past_owners as past_owners_
from latencyprobe_operator.plan.past_owners import KEPT_S, Past, PastOwners

ONE, OTHER = "10.0.0.1", "10.0.0.2"


class World:
    """Those who leave are told from second 100 on; each has a measured client half."""

    def __init__(self, make: Any) -> None:
        self.pod = make.pod("web-1", node="n2", addresses=(ONE,))
        self.past = PastOwners()
        self.past.note((), self.measured, 100.0)

    def measured(self, node: str, uid: str) -> tuple[str, ...]:
        return (f"{node}/{uid}",)

    def leaves(self, at_s: float, address: str = ONE, pod: Any = True) -> None:
        left = Left(address, self.pod if pod is True else pod, at_s)
        self.past.note([left], self.measured, at_s)


@pytest.fixture
def world(make: Any) -> World:
    return World(make)


def test_who_has_left_is_known_with_what_was_measured_of_it_for_a_while(world: World) -> None:
    world.leaves(200.0)
    past = Past(world.pod, 200.0 - KEPT_S, 200.0, (f"n2/{world.pod.uid}",))
    assert world.past.at(ONE, 200.0 + KEPT_S - 1.0) == past
    assert world.past.nodes_at(ONE, 200.0) == {"n2"}
    assert world.past.at(ONE, 200.0 + KEPT_S) is None
    assert world.past.at(OTHER, 200.0) is None
    assert world.past.nodes_at(OTHER, 200.0) == frozenset()


def test_nobody_had_an_address_before_the_one_before_him_left(world: World, make: Any) -> None:
    world.leaves(200.0)
    later = make.pod("web-2", addresses=(ONE,))
    world.leaves(203.0, pod=later)
    past = world.past.at(ONE, 203.0)
    assert past is not None
    assert (past.pod, past.began_s, past.ended_s) == (later, 200.0, 203.0)


def test_of_an_address_that_two_claimed_nobody_is_known_until_then(world: World) -> None:
    world.leaves(200.0, pod=None)
    assert world.past.at(ONE, 200.0) is None
    world.leaves(201.0)
    past = world.past.at(ONE, 201.0)
    assert past is not None
    assert past.began_s == 200.0


def test_nobody_had_an_address_before_it_was_told_who_leaves(make: Any) -> None:
    world = World(make)
    world.leaves(101.0)
    past = world.past.at(ONE, 101.0)
    assert past is not None
    assert past.began_s == 100.0
    fresh = PastOwners()
    fresh.note([Left(ONE, world.pod, 100.0)], world.measured, 100.5)
    assert fresh.at(ONE, 100.5) is None


def test_of_more_than_there_is_room_for_the_latest_are_known_and_nobody_is_taken_for_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_owners_, "ROOM", 2)
    for n in range(3):
        world.leaves(200.0 + n, address=f"10.0.0.{n}")
    assert [world.past.at(f"10.0.0.{n}", 203.0) is not None for n in range(3)] == [False, True, True]
    world.leaves(204.0, address="10.0.0.0")
    past = world.past.at("10.0.0.0", 204.0)
    assert past is not None
    assert past.began_s >= 200.0, "another had it until then, which is not remembered"
