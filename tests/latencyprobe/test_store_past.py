"""store/past.py: events step by step, and which objectives were counted when."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S
from latencyprobe.store import SqliteStore
from latencyprobe.store.levels import down
from tests.latencyprobe.store_rows import KEY, NOW, Clock, row

FAST = Objective(KEY, "cart", 25_000_000, "99.9", "28d", 100, errors_count_as_bad=True)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW - 100 * DAY_S)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    """Yield a store of 100 days: 10 good ones and 1 bad one every 6 hours."""
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as opened:
        opened.define("shop", "checkout", [FAST])
        for day in range(NOW - 100 * DAY_S, NOW, DAY_S):
            clock.now = day
            opened.add(row(at, good=10, bad=1) for at in range(day, day + DAY_S, 6 * HOUR_S))
        clock.now = NOW
        opened.compact(NOW)
        yield opened


@pytest.mark.parametrize(
    ("days", "step_s", "steps"),
    [(1, 15 * MINUTE_S, 73), (7, 2 * HOUR_S, 82), (28, 6 * HOUR_S, 112), (30, 8 * HOUR_S, 90), (90, DAY_S, 90)],
)
def test_steps_add_up_to_the_window(store: SqliteStore, days: int, step_s: int, steps: int) -> None:
    since, until = NOW - days * DAY_S, NOW + 1
    found = store.events_by_step(KEY, since, until, step_s)
    assert steps == len(found)
    assert store.events(KEY, since, until) == Events(sum(e.good for e in found), sum(e.bad for e in found))


def test_each_step_has_what_began_in_it(store: SqliteStore) -> None:
    found = store.events_by_step(KEY, NOW - 28 * DAY_S, NOW + 1, 6 * HOUR_S)
    assert [Events(10, 1)] * 112 == found


def test_hours_count_in_the_step_in_which_they_begin_where_minutes_are_gone(store: SqliteStore) -> None:
    since = NOW - 10 * DAY_S
    assert [Events(10, 1)] == store.events_by_step(KEY, since, since + HOUR_S, 15 * MINUTE_S)


def test_unknown_series_has_no_steps(store: SqliteStore) -> None:
    assert [] == store.events_by_step(KEY._replace(hash="h9"), NOW - DAY_S, NOW, HOUR_S)


def test_horizons_tell_how_far_back_it_reaches(store: SqliteStore) -> None:
    kept = store.horizons()
    assert (NOW - 100 * DAY_S, True) == (kept.days, kept.days < kept.hours < kept.minutes)
    assert [MINUTE_S, HOUR_S, DAY_S] == [kept.finest_s(NOW - days * DAY_S) for days in (1, 20, 50)]


def test_nothing_is_told_of_an_empty_store(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "empty.db") as empty:
        assert 0 == empty.horizons().days
        assert () == empty.objectives_at(NOW)


def test_objectives_are_those_of_then(store: SqliteStore, clock: Clock) -> None:
    newer = replace(FAST, key=KEY._replace(hash="h2"), threshold_ns=10_000_000)
    store.define("shop", "checkout", [newer])
    assert (FAST,) == store.objectives_at(NOW), "the new one has no counts yet"
    for minute in range(NOW, NOW + 4 * DAY_S, 6 * HOUR_S):
        clock.now = minute
        store.add([row(minute, key=newer.key)])
    assert (FAST,) == store.objectives_at(NOW - 50 * DAY_S)
    assert (newer,) == store.objectives_at(NOW + 3 * DAY_S)
    assert () == store.objectives_at(NOW - 101 * DAY_S)


def test_objective_that_was_retired_is_there_until_it_was(store: SqliteStore) -> None:
    store.define("shop", "checkout", [])
    assert (FAST,) == store.objectives_at(NOW - DAY_S)
    assert () == store.objectives_at(NOW + 3 * DAY_S)


def test_the_last_counts_of_a_namespace_are_known_for_as_long_as_any_are(store: SqliteStore, clock: Clock) -> None:
    last = NOW - 6 * HOUR_S
    assert (last, None) == (store.last("shop"), store.last("bank"))
    for later_s, found in ((3 * DAY_S, down(last, HOUR_S)), (40 * DAY_S, down(last, DAY_S))):
        clock.now = NOW + later_s
        store.compact(NOW + later_s)
        assert found == store.last("shop")
    store.define("shop", "checkout", [])
    assert store.last("shop") is None, "nobody reports what is retired"
