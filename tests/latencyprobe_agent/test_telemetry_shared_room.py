"""shared_room.py: nobody lacks an equal part, whoever came first; what nobody else wants anybody has."""

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.telemetry.shared_room import SharedRoom


def fill(room: SharedRoom, namespace: str, wanted: int) -> int:
    """Take one by one what a namespace wants; return how much it has now."""
    while room.held[namespace] < wanted and room.take(namespace):
        pass
    return room.held[namespace]


def test_who_is_alone_has_all_of_it() -> None:
    room = SharedRoom(80)
    assert 80 == fill(room, "evil", 1000)
    assert set() == room.share_out(), "nobody lacks it"


def test_who_comes_later_has_an_equal_part_at_once_and_who_has_more_gives_back() -> None:
    room = SharedRoom(80)
    room.namespaces = 2
    fill(room, "evil", 1000)
    assert 30 == fill(room, "shop", 30)
    assert {"evil"} == room.share_out()
    room.give_back("evil", 80)
    assert 40 == fill(room, "evil", 1000), "its share of what is left, an eighth of all stays free"
    assert set() == room.share_out()


def test_who_grows_and_shrinks_within_his_part_makes_nobody_give_back() -> None:
    room = SharedRoom(80)
    room.namespaces = 2
    fill(room, "evil", 1000)
    fill(room, "shop", 20)
    assert {"evil"} == room.share_out()
    room.give_back("evil", room.held["evil"])
    for wanted in [20, 25, 28, 22, 28, 20] * 5:
        fill(room, "evil", 1000)
        assert fill(room, "shop", wanted) >= wanted
        room.give_back("shop", room.held["shop"] - wanted)
        assert set() == room.share_out()


def test_two_who_want_all_of_it_settle_at_equal_parts() -> None:
    room = SharedRoom(80)
    room.namespaces = 2
    fill(room, "evil", 1000)
    over = []
    for _ in range(10):
        fill(room, "evil", 1000)
        fill(room, "worse", 1000)
        over.append(room.share_out())
        for namespace in over[-1]:
            room.give_back(namespace, room.held[namespace])
    assert [{"evil"}, *[set()] * 9] == over
    assert {"evil": 40, "worse": 40} == room.held


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 60)), max_size=60))
def test_whatever_comes_an_equal_part_is_never_refused_and_all_is_bounded(rounds: list[tuple[str, int]]) -> None:
    room = SharedRoom(100)
    room.namespaces = 5
    for namespace, wanted in rounds:
        fill(room, namespace, wanted)
        assert room.held[namespace] >= min(wanted, 100 // 5)
        assert room.held.total() <= 2 * 100
        for over in room.share_out():
            room.give_back(over, room.held[over])
        assert room.held.total() <= 100
