"""store/sqlite.py: time that passes, jumps, comes late, was measured and was wanted."""

import random
import sqlite3
from pathlib import Path

import pytest

from latencyprobe.sli import Coverage
from latencyprobe.store import SqliteStore
from tests.latencyprobe.store_rows import DAY_S, HOUR_S, KEY, MINUTE_S, NOW, Clock, add_batch, batch, good, row


@pytest.fixture
def store(empty_store: SqliteStore) -> SqliteStore:
    return empty_store


def test_compaction_keeps_what_each_level_promises(tmp_path: Path, clock: Clock) -> None:
    clock.now = NOW - 500 * DAY_S
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        while clock.now <= NOW:
            store.add([row(int(clock.now))])
            clock.now += 10 * HOUR_S
        store.compact(NOW)
    with sqlite3.connect(store.path) as db:
        oldest = dict(db.execute("SELECT width_s, min(start) FROM counts GROUP BY width_s").fetchall())
    assert NOW - 2 * DAY_S - HOUR_S <= oldest[MINUTE_S] <= NOW - 2 * DAY_S + 10 * HOUR_S
    assert NOW - 36 * DAY_S <= oldest[HOUR_S] <= NOW - 34 * DAY_S
    assert NOW - 401 * DAY_S <= oldest[DAY_S] <= NOW - 399 * DAY_S


def horizons_of(store: SqliteStore) -> tuple[int, ...]:
    return tuple(store._db.execute("SELECT minutes, hours, days FROM state").fetchone())


def test_a_jump_of_the_clock_takes_no_minute_away_and_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    """Ten minutes in the wrong year, with a restart in between."""
    steady = Clock(1000)
    minutes = range(NOW - 20 * HOUR_S, NOW, 60)
    for started in range(2):
        with SqliteStore(tmp_path / "sli.db", clock=clock, steady=steady) as store:
            if not started:
                store.add(row(minute) for minute in minutes)
                add_batch(store, "n1", batch(5))
            for _ in range(5):
                steady.now += 60
                store.compact(NOW + 400 * DAY_S)
    steady.now += 60
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=steady) as store:
        store.compact(NOW)
        assert 60 == store.events(KEY, NOW - 19 * HOUR_S, NOW - 18 * HOUR_S).good
        assert 1 == store.events(KEY, NOW - 19 * HOUR_S, NOW - 19 * HOUR_S + 60).good
        assert 6 == add_batch(store, "n1", batch(9)), "its number is still known"


def test_a_clock_that_was_wrong_when_the_store_was_begun_costs_nothing_once_it_is_right(
    tmp_path: Path, clock: Clock
) -> None:
    clock.now = NOW + 400 * DAY_S
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=Clock(0)) as store:
        store.add([row(int(clock.now))])
        store.compact(int(clock.now))
        clock.now = NOW
        store.add([row(NOW - 60)])
        store.compact(NOW)
        assert 1 == store.events(KEY, NOW - 60, NOW).good
        assert 0 == store.events(KEY, NOW - 120, NOW - 60).good


def test_horizons_never_recede(store: SqliteStore, clock: Clock) -> None:
    store.add(row(minute) for minute in range(NOW - 20 * HOUR_S, NOW, 600))
    clock.now = NOW + 2 * DAY_S
    store.compact(int(clock.now))
    known = horizons_of(store)
    assert NOW == known[0], "all its minutes are gone"
    for back_s in (HOUR_S, 3 * DAY_S, 300 * DAY_S):
        store.compact(int(clock.now) - back_s)
        assert known == horizons_of(store)
    assert 6 == store.events(KEY, NOW - 10 * HOUR_S, NOW - 9 * HOUR_S).good, "read from the hours that are left"


def test_a_store_that_was_closed_for_a_month_catches_up(tmp_path: Path, clock: Clock) -> None:
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        store.add([row()])
    clock.now += 30 * DAY_S
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        while not horizons_of(store)[0]:
            clock.now += HOUR_S
            store.compact(int(clock.now))
            assert clock.now < NOW + 31 * DAY_S


def test_late_minute_counts_for_a_day_and_is_then_reported(store: SqliteStore) -> None:
    store.add([row(NOW - DAY_S), row(NOW - DAY_S - 60)])
    assert (1, 1) == (good(store), store.late_rows)


def test_what_was_refused_as_late_is_missing_in_the_coverage_of_its_minute(store: SqliteStore, clock: Clock) -> None:
    clock.now = NOW - DAY_S
    store.add([row(NOW - DAY_S - 120, good=90)])
    clock.now = NOW
    late = row(NOW - DAY_S - 60, 8, 1, coverage=Coverage(seen=11, ambiguous=2, lost=1), exclusions={"push": 2})
    store.add([late, row(NOW - 3 * DAY_S, 7), row(NOW - DAY_S - 60, key=KEY._replace(objective="nobody's"))])
    for until in (NOW - DAY_S, NOW - 22 * HOUR_S, NOW + DAY_S):
        read = store.read(KEY, NOW - DAY_S - 120, until)
        assert (90, 0, Coverage(lost=12)) == (read.good, read.bad, read.coverage)
    assert 3 == store.late_rows
    assert store.since(KEY._replace(objective="nobody's")) is None


def test_wanted_time_is_the_highest_word_for_a_minute(store: SqliteStore) -> None:
    for expected_ms in (60_000, 120_000, 60_000):
        store.expect([([KEY], NOW, expected_ms)])
    store.add([row(coverage=Coverage(measured_ms=45_000))])
    assert Coverage(measured_ms=45_000, expected_ms=120_000) == store.read(KEY, NOW - DAY_S, NOW + 60).coverage


def test_wanted_time_is_stored_however_long_the_store_was_away_while_minutes_are_kept(
    store: SqliteStore, clock: Clock
) -> None:
    clock.now = NOW - 3 * DAY_S
    store.add([row(NOW - 3 * DAY_S)])
    clock.now = NOW
    store.compact(NOW)
    horizon = horizons_of(store)[0]
    minutes = [horizon - 60, horizon, NOW - 30 * HOUR_S, NOW]
    assert 1 == store.expect([([KEY], minute, 60_000) for minute in minutes]), "whose minute is not kept any more"
    assert 180_000 == store.read(KEY, horizon, NOW + 60).coverage.expected_ms
    assert 60_000 == store.read(KEY, NOW - 30 * HOUR_S, NOW - 29 * HOUR_S).coverage.expected_ms
    assert 0 == store.late_rows


MEASURED = Coverage(measured_ms=60_000)
SPANS = {"minutes": (NOW, NOW + 120), "hours": (NOW, NOW + HOUR_S), "days": (NOW - 5 * HOUR_S, NOW + 19 * HOUR_S)}


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("wanted_first", [True, False])
@pytest.mark.parametrize("wanted_ms", [0, 50_000])
def test_time_that_nobody_wanted_fills_no_gap_in_any_level(
    store: SqliteStore, span: tuple[int, int], wanted_first: bool, wanted_ms: int
) -> None:
    """As of minutes before the operator's start, or of a node that measures before it is known to be ready."""
    for wanted in (wanted_first, not wanted_first):
        if wanted:
            store.expect([([KEY], NOW, wanted_ms)])
            store.expect([([KEY], NOW + 60, 60_000)])
        else:
            store.add([row(NOW, coverage=MEASURED), row(NOW, coverage=MEASURED)])
            store.add([row(NOW + 60, coverage=Coverage(measured_ms=50_000))])
    coverage = store.read(KEY, *span).coverage
    assert (50_000 + wanted_ms, 60_000 + wanted_ms) == (coverage.measured_ms, coverage.expected_ms)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_the_minute_that_is_not_over_does_not_hide_the_gap_of_an_earlier_one(
    store: SqliteStore, span: tuple[int, int]
) -> None:
    store.add([row(NOW, coverage=Coverage(measured_ms=53_000)), row(NOW + 60, coverage=Coverage(measured_ms=15_000))])
    store.expect([([KEY], NOW, 60_000)])
    coverage = store.read(KEY, *span).coverage
    assert (53_000, 60_000) == (coverage.measured_ms, coverage.expected_ms)


def test_every_level_holds_the_same_time_whatever_came_first(store: SqliteStore) -> None:
    rng = random.Random(3)
    measured, expected = dict.fromkeys(range(NOW, NOW + HOUR_S, 60), 0), dict.fromkeys(range(NOW, NOW + HOUR_S, 60), 0)
    for _ in range(600):
        minute, ms = rng.choice(list(measured)), rng.choice([0, 20_000, 60_000, 120_000])
        if rng.random() < 0.3:
            store.expect([([KEY], minute, ms)])
            expected[minute] = max(expected[minute], ms)
        else:
            store.add([row(minute, coverage=Coverage(measured_ms=ms))])
            measured[minute] += ms
    wanted = sum(min(measured[minute], expected[minute]) for minute in measured)
    for span in ((NOW, NOW + 59 * 60), SPANS["hours"], SPANS["days"]):
        last = NOW + 59 * 60
        of_last = 0 if span[1] > last else min(measured[last], expected[last])
        assert wanted - of_last == store.read(KEY, *span).coverage.measured_ms
