"""Expected time that waits for the store."""

import tracemalloc

import pytest

from latencyprobe.plan import Role
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe_operator.reports.waiting import AT_ONCE, Waiting, Wanted

MINUTE = 1_700_000_040


def keys(namespace: str, count: int, uid: str = "u") -> list[ObjectiveKey]:
    return [ObjectiveKey(namespace, "p", uid, f"o{i}", "h" * 16, Role.SERVER) for i in range(count)]


def all_of(waiting: Waiting) -> list[Wanted]:
    """Take all that waits, as it is stored."""
    found = []
    while some := waiting.some():
        assert sum(len(group[0]) for group in some) <= AT_ONCE
        waiting.stored(some)
        found += some
    return found


@pytest.mark.long
def test_objectives_that_wait_minute_after_minute_are_kept_once() -> None:
    waiting, many = Waiting(), keys("shop", 20_000)
    waiting.put(MINUTE, dict.fromkeys(many, 60_000.0))
    tracemalloc.start()
    for minute in range(1, 61):
        waiting.put(MINUTE + 60 * minute, dict.fromkeys(many, 60_000.0))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (waiting.forgotten, len(waiting)) == (0, 61 * 20)
    assert grown < 500_000, "an hour of a full store"


def test_who_edits_without_end_has_nothing_of_the_others_forgotten() -> None:
    waiting = Waiting(1_000)
    for minute in range(50):
        edited = keys("evil", 100, uid=f"u{minute}")
        waiting.put(MINUTE + 60 * minute, dict.fromkeys([*keys("shop", 10), *edited], 60_000.0))
    assert waiting._size <= 1_000
    waits = [keys[0].namespace for keys, _, _ in all_of(waiting)]
    assert (waits.count("shop"), waits.count("evil"), waiting.forgotten) == (50, 9, 41)


def test_what_is_stored_together_is_bounded_by_objectives_and_all_of_it_comes() -> None:
    waiting = Waiting()
    waiting.put(MINUTE, {key: 60_000.0 * (1 + i % 2) for i, key in enumerate(keys("shop", 5 * AT_ONCE))})
    waiting.put(MINUTE, dict.fromkeys(keys("bank", 3), 30_000.0))
    found = all_of(waiting)
    assert {key: ms for some, _, ms in found for key in some} == {
        **{key: 60_000 * (1 + i % 2) for i, key in enumerate(keys("shop", 5 * AT_ONCE))},
        **dict.fromkeys(keys("bank", 3), 30_000),
    }
    assert (len(waiting), waiting._size) == (0, 0)
