"""store/recent.py: figures by peer of the last minutes, bounded and shared out."""

from contextlib import suppress

import pytest

from latencyprobe.sli import PEERS, PeerCounts, SliRow
from latencyprobe.store.recent import KEPT_S, ROOM, Recent
from tests.latencyprobe.store_rows import KEY, MINUTE_S, NOW, Clock, row

ONE = PeerCounts(3, 1, {-200: 2, -100: 1})
HOUR = (NOW - 3600, NOW + 3600)


def of(recent: Recent, *rows: SliRow) -> None:
    with recent.taking():
        for one in rows:
            recent.add(one)


def named(namespace: str, minute: int = NOW, name: str = "web") -> SliRow:
    return row(minute, key=KEY._replace(namespace=namespace), by_peer={name: ONE})


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


def test_what_nodes_tell_of_one_minute_and_of_several_adds_up(clock: Clock) -> None:
    recent = Recent(clock)
    of(recent, row(by_peer={"a": ONE}), row(by_peer={"a": ONE, "b": ONE}))
    of(recent, row(NOW + MINUTE_S, by_peer={"b": ONE}), row(NOW + MINUTE_S))
    found = recent.read(KEY, *HOUR)
    assert (found.since, [*found.by_peer]) == (NOW, ["a", "b"])
    assert found.by_peer["b"] == PeerCounts(6, 2, {-200: 4, -100: 2})
    assert recent.read(KEY, NOW + MINUTE_S, NOW + 2 * MINUTE_S).by_peer == {"b": ONE}
    assert recent.read(KEY._replace(objective="other"), *HOUR).by_peer == {}


def test_what_was_not_stored_counts_nowhere(clock: Clock) -> None:
    recent = Recent(clock)
    with suppress(ZeroDivisionError), recent.taking():
        recent.add(row(by_peer={"a": ONE}))
        raise ZeroDivisionError
    of(recent, row(by_peer={"b": ONE}))
    assert recent.read(KEY, *HOUR).by_peer == {"b": ONE}


def test_minutes_that_were_over_when_it_began_are_not_known(clock: Clock) -> None:
    clock.now += 45
    recent = Recent(clock)
    of(recent, row(NOW - MINUTE_S, by_peer={"a": ONE}), row(NOW, by_peer={"b": ONE}))
    assert recent.read(KEY, NOW - 300, NOW + MINUTE_S) == (NOW, {"b": ONE})


def test_what_is_old_is_forgotten_and_what_comes_too_late_is_not_kept(clock: Clock) -> None:
    recent = Recent(clock)
    of(recent, named("shop"), named("bank"))
    clock.now += KEPT_S + MINUTE_S
    of(recent, named("shop", NOW), named("shop", int(clock.now)))
    assert list(recent._of) == ["shop"]
    assert recent.read(KEY, *HOUR).by_peer == {"web": ONE}
    assert recent._sizes.keys() == {"shop"}


def test_who_has_more_than_a_share_of_the_room_loses_his_oldest_and_the_others_nothing(clock: Clock) -> None:
    recent = Recent(clock, room=4_000)
    for minute in range(NOW, NOW + 5 * MINUTE_S, MINUTE_S):
        rows = [row(minute, key=KEY._replace(objective=f"o{i}"), by_peer={"web": ONE}) for i in range(9)]
        of(recent, *rows, named("bank", minute))
    crowded = recent.read(KEY._replace(objective="o1"), *HOUR)
    assert (crowded.since, crowded.by_peer) == (NOW + 4 * MINUTE_S, {"web": ONE})
    spared = recent.read(KEY._replace(namespace="bank"), *HOUR)
    assert (spared.since, spared.by_peer["web"].events) == (NOW, 5 * ONE.events)
    assert sum(recent._sizes.values()) <= 4_000


def test_an_objective_of_many_peers_has_room_beside_hundreds_of_others(clock: Clock) -> None:
    recent = Recent(clock)
    many = {f"namespace/workload-{i}": PeerCounts(900, 9, dict.fromkeys(range(-200, -160), 20)) for i in range(PEERS)}
    for minute in range(NOW, NOW + KEPT_S, 5 * MINUTE_S):
        of(recent, row(minute, by_peer=many))
    assert sum(recent._sizes.values()) / 2 * KEPT_S / MINUTE_S < ROOM / 700
