"""Room for objectives."""

import re

from latencyprobe_operator.status.objective_room import MOST, ObjectiveRoom, most


def asked(room: int, **by_namespace: list[int]) -> ObjectiveRoom:
    found = ObjectiveRoom(lambda: room)
    for namespace, counts in by_namespace.items():
        for number, count in enumerate(counts):
            found.ask((namespace, f"p{number}"), count)
    return found


def test_while_there_is_room_nobody_is_out() -> None:
    room = asked(100, evil=[32, 32], shop=[32])
    assert room.out() == frozenset()
    room.ask(("shop", "p1"), 5)
    assert room.out() == {("evil", "p1")}
    room.ask(("evil", "p0"), 0)
    assert room.out() == frozenset()


def test_who_asks_for_more_than_its_share_loses_its_largest_whoever_came_first() -> None:
    one, other = asked(100, evil=[32] * 50, shop=[20]), asked(100, shop=[20], evil=[32] * 50)
    assert one.out() == other.out() == {("evil", f"p{number}") for number in range(2, 50)}


def test_what_is_told_names_who_asks_for_most_and_the_remedy() -> None:
    room = asked(100, evil=[32] * 50, shop=[20])
    assert room.out()
    assert room.why(("evil", "p7")) == (
        "there is room for 100 objectives in the cluster, and 1,620 are asked for, most of them by namespace evil, "
        "1,600 by this one: ask for fewer here, or enlarge the volume of persistence.size, of which each takes 0.8 MB, "
        "up to 20,000"
    )


def test_a_size_as_large_as_is_told_is_enough_for_a_store_with_a_limit_too() -> None:
    for limit, limited in ((None, False), (2 << 30, True)):
        room = ObjectiveRoom(lambda limit=limit: most(1 << 40, limit), limited=limited)  # type: ignore[misc]
        room.ask(("shop", "a"), 3_000)
        found = re.search(r"each takes (\S+) MB", room.why(("shop", "a")))
        assert found is not None
        told = int(3_000 * float(found[1]) * 1e6)
        assert most(told, told if limited else None) >= 3_000, limited


def test_the_volume_of_the_store_says_how_many_there_may_be() -> None:
    assert [most(size) for size in (2 << 30, 1 << 40, None)] == [2_684, MOST, MOST]


def test_a_store_that_would_cost_its_pod_the_place_has_room_within_its_limit() -> None:
    limit = 2 << 30
    assert [most(size, limit) for size in (1 << 40, None, 1 << 30)] == [2_013, 2_013, 1_342]
