"""report/history.py: the burn-down and the week before, from a store, and what reading them takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from latencyprobe.report import build, room
from latencyprobe.report.model import Result
from latencyprobe.slo.burndown import POINTS
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S, WINDOW_S
from latencyprobe.store import SqliteStore, columns, windows
from tests.latencyprobe.store_rows import KEY, NOW, Clock, row

FAST = Objective(KEY, "cart", 25_000_000, "99", "28d", 100, errors_count_as_bad=True)
EVERY_S = 2 * HOUR_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Yield 120 days of 1,000 events every two hours; of these 5 bad until a week ago, 20 since then."""
    clock = Clock(NOW - 120 * DAY_S)
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as opened:
        opened.define("shop", "checkout", [FAST])
        for day in range(NOW - 120 * DAY_S, NOW, DAY_S):
            clock.now = day
            bad, stage, bucket = (20, "process", -100) if day >= NOW - 7 * DAY_S else (5, "send", -150)
            counts = {"dominant": {stage: bad}, "histogram": {-200: 990, bucket: 10}}
            opened.add(row(at, good=1000 - bad, bad=bad, **counts) for at in range(day, day + DAY_S, EVERY_S))
        clock.now = NOW
        opened.compact(NOW)
        yield opened


def judged(store: SqliteStore, window: str = "28d", now: int = NOW, **how: int) -> Result:
    (result,) = build.build(store, [replace(FAST, window=window)], now, **how).results
    return result


@pytest.mark.parametrize("window", WINDOW_S)
def test_burn_down_has_few_points_and_ends_where_the_budget_is(store: SqliteStore, window: str) -> None:
    result = judged(store, window)
    assert result.burn_down is not None
    assert 12 <= len(result.burn_down.left) <= POINTS
    assert result.error_budget_remaining == result.burn_down.left[-1]
    left = [float(one) for one in result.burn_down.left]
    assert left == sorted(left, reverse=True)


def test_burn_down_is_steeper_where_more_was_bad(store: SqliteStore) -> None:
    down = judged(store).burn_down
    assert down is not None
    assert ("6h", "1969-12-31T00:00:00Z" < down.since) == (down.step, True)
    left = [float(one) for one in down.left]
    before, since = left[0] - left[83], left[84] - left[-1]
    assert 4 * 28 / 84 == pytest.approx(since / before * 83 / 27 * 28 / 84, rel=0.1)


def test_burn_down_begins_with_the_first_counts(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "young.db", clock=Clock()) as young:
        young.add([row(at, good=1000) for at in range(NOW - DAY_S + MINUTE_S, NOW, HOUR_S)])
        down = judged(young).burn_down
    assert down is not None
    assert (["100"] * 5, "6h") == (list(down.left), down.step)


@pytest.mark.parametrize("window", WINDOW_S)
def test_without_events_a_report_stays_the_same_from_minute_to_minute(tmp_path: Path, window: str) -> None:
    step = 6 * HOUR_S
    begin = NOW - NOW % step
    with SqliteStore(tmp_path / "idle.db", clock=Clock(begin)) as idle:
        idle.add([row(at, good=990, bad=10) for at in range(begin - 3 * HOUR_S, begin, 10 * MINUTE_S)])
        told = [judged(idle, window, begin + HOUR_S + minute * MINUTE_S) for minute in range(12)]
    assert {replace(told[0], updated="")} == {replace(one, updated="") for one in told}


def test_too_few_events_have_no_burn_down(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "few.db", clock=Clock()) as few:
        few.add([row(NOW - HOUR_S, good=9, bad=1)])
        result = judged(few)
    assert (State.NO_DATA, None, None) == (result.state, result.burn_down, result.week_before)


def test_week_before_is_the_same_window_as_it_was_reported_then(store: SqliteStore) -> None:
    before = judged(store).week_before
    assert before is not None
    assert ("99.5", "50", "send", "100") == (before.sli, before.error_budget_remaining, before.stage, before.share)
    then = judged(store, now=NOW - 7 * DAY_S, past=True)
    assert (then.sli, then.bad, then.events) == (before.sli, before.bad, before.events)
    assert then.quantiles is not None
    assert then.quantiles.p99 == before.p99


@pytest.mark.parametrize(("window", "days"), [("28d", 34), ("90d", 96)])
def test_week_before_is_not_told_where_not_all_of_it_was_counted(tmp_path: Path, window: str, days: int) -> None:
    clock = Clock(NOW - days * DAY_S)
    with SqliteStore(tmp_path / "young.db", clock=clock, steady=clock) as young:
        for day in range(NOW - days * DAY_S, NOW, DAY_S):
            clock.now = day
            young.add([row(day, good=1000)])
        assert judged(young, window).week_before is None


def test_figures_of_the_last_minutes_are_not_compared_with_a_week(store: SqliteStore) -> None:
    assert judged(store, since_s=DAY_S).week_before is None


def test_report_of_the_past_has_nothing_that_came_later_and_no_alert_that_is_finer_than_its_rows(
    store: SqliteStore,
) -> None:
    then = judged(store, now=NOW - 7 * DAY_S, past=True)
    assert (28 * 12 * 1000, 28 * 12 * 5) == (then.events, then.bad)
    assert ["1d", "3d"] == [burn.long for burn in then.burn_rates]
    assert [] == [burn.long for burn in judged(store, now=NOW - 50 * DAY_S, past=True).burn_rates]


@pytest.mark.parametrize("window", WINDOW_S)
def test_reading_an_objective_takes_a_bounded_number_of_rows_and_queries(
    store: SqliteStore, window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    counts, summed = windows.counts, columns.summed

    def windowed(*asked: object) -> object:
        rows.append(0)
        return counts(*asked)

    def counted(stored: list[object]) -> object:
        rows[-1] += len(stored)
        return summed(stored)

    monkeypatch.setattr(windows, "counts", windowed)
    monkeypatch.setattr(columns, "summed", counted)
    queries: list[str] = []
    store._db.set_trace_callback(queries.append)
    judged(store, window)
    assert 3 == len(rows), "its window, the last minutes, and the window a week before"
    assert max(rows) <= 254, "a window; latencyprobe/bounds.py counts on it"
    assert len([query for query in queries if "FROM counts" in query]) <= 40


def test_best_give_up_their_history_before_anybody_gives_up_exemplars(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    objectives = [replace(FAST, key=KEY._replace(objective=f"o{i}")) for i in range(20)]
    for one in objectives:
        store.add([row(NOW - at * 6 * HOUR_S, good=900, bad=9, key=one.key) for at in range(4)])
    assert all(one.burn_down for one in build.build(store, objectives, NOW).results)
    monkeypatch.setattr(room, "MAX_BYTES", 4096 + 15_000)
    found = build.build(store, objectives, NOW)
    kept = [one.burn_down is not None for one in found.results]
    assert ([True] * 12, False) == (kept[:12], kept[-1])
    assert 20 == len(found.results) + found.omitted
