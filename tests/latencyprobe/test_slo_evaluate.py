"""slo/evaluate.py: states in their order, alerts at the minute computed by hand, coverage."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.plan import Role
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.evaluate import Events, State, coverage_ratio, evaluate, windows_needed
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.slo.windows import DAY_S, HOUR_S, WINDOW_S
from tests.latencyprobe.event_series import DAY, HOUR, Series


def objective(goal: str = "99.9", window: str = "30d", min_events: int = 100) -> Objective:
    key = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)
    return Objective(key, "cart", 25_000_000, goal, window, min_events, errors_count_as_bad=True)


def row(good: int, bad: int, **coverage: int) -> SliRow:
    return SliRow(*objective().key, minute=0, good=good, bad=bad, coverage=Coverage(**coverage))


def quiet(o: Objective) -> dict[int, Events]:
    return dict.fromkeys(windows_needed(o), Events(1000, 0))


@pytest.mark.long
def test_one_hour_outage_fires_and_clears_each_row_at_the_minute_computed_by_hand() -> None:
    # 60 events a minute for three days, then all of them bad for an hour. A row fires when more than
    # factor × 0.1 % × 60 × its long minutes are bad: 52, 130, 260, 260 events = 1, 3, 5, 5 minutes. It clears when
    # the short window's last bad minute has left it: the short window's length after the end.
    start, end = 3 * DAY, 3 * DAY + HOUR
    series = Series(4 * DAY, lambda minute: (0, 60) if start <= minute < end else (60, 0), objective())
    assert {
        HOUR_S: [(1, False), (start + 1, True), (end + 5, False)],
        6 * HOUR_S: [(1, False), (start + 3, True), (end + 30, False)],
        DAY_S: [(1, False), (start + 5, True), (end + 2 * HOUR, False)],
        3 * DAY_S: [(1, False), (start + 5, True), (end + 6 * HOUR, False)],
    } == series.firing()


@pytest.mark.long
def test_slow_leak_fires_the_slowest_row_alone_after_two_days() -> None:
    # 2,000 events a minute, from day 3 on 3 of them bad: rate 1.5. The long window of three days holds 8,640,000
    # events; more than 8,640 bad ones are there after 2,880 minutes and one more.
    start = 3 * DAY
    series = Series(6 * DAY, lambda minute: (1997, 3) if minute >= start else (2000, 0), objective())
    quiet_rows = {length: [(1, False)] for length in (HOUR_S, 6 * HOUR_S, DAY_S)}
    assert quiet_rows | {3 * DAY_S: [(1, False), (start + 2 * DAY + 1, True)]} == series.firing()
    assert State.VIOLATED != series.at(6 * DAY).state


def test_constant_burn_of_ten_fires_all_rows_but_the_first() -> None:
    series = Series(4 * DAY, lambda _: (99, 1), objective())
    assert [False, True, True, True] == [burn.firing for burn in series.at(4 * DAY).burns]
    assert [Fraction(10)] * 4 == [burn.long_rate for burn in series.at(4 * DAY).burns]


@pytest.mark.parametrize("window", WINDOW_S)
def test_healthy_burn_of_30_percent_never_alerts(window: str) -> None:
    series = Series(8 * DAY, lambda minute: (997, 3) if minute % 10 == 0 else (1000, 0), objective(window=window))
    for now in range(20, 8 * DAY, 7):
        assert State.MET == series.at(now).state, now


def test_alert_needs_enough_events_in_its_long_window() -> None:
    o = objective()
    few = dict.fromkeys(windows_needed(o), Events(0, 99))
    assert not any(burn.firing for burn in evaluate(o, row(10**6, 0), few).burns)
    enough = dict.fromkeys(windows_needed(o), Events(0, 100))
    assert all(burn.firing for burn in evaluate(o, row(10**6, 0), enough).burns)


def test_unreachable_row_never_fires() -> None:
    o = objective(goal="90")
    burned = dict.fromkeys(windows_needed(o), Events(0, 10**6))
    assert [False, True, True, True] == [burn.firing for burn in evaluate(o, row(10**6, 0), burned).burns]


@pytest.mark.parametrize(
    ("goal", "min_events", "needed"),
    [
        ("99.9", 100, 1000),
        ("99.9", 5000, 5000),
        ("99", 100, 100),
        ("50", 1, 2),
        ("99.99999", 1, 10**7),
        ("99.7", 1, 334),
    ],
)
def test_one_bad_event_never_spends_the_whole_budget(goal: str, min_events: int, needed: int) -> None:
    assert needed == evaluate(objective(goal, min_events=min_events), row(0, 0), quiet(objective())).events_needed


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        (row(0, 0), State.NO_DATA),
        (row(0, 999), State.NO_DATA),  # nothing is judged below 1,000 events, not even all bad
        (row(9990, 10), State.VIOLATED),  # the budget is spent to the last event
        (row(9990, 10, ambiguous=10**6), State.VIOLATED),  # a spent budget stays spent
        (row(10000, 0, ambiguous=1112), State.INCOMPLETE),
        (row(10000, 0, ambiguous=1111), State.MET),
        (row(9992, 8, lost=2000), State.INCOMPLETE),  # at risk, but first incomplete
        (row(9992, 8), State.AT_RISK),  # 20 % left
        (row(99925, 75), State.MET),  # 25 % left
        (row(10000, 0), State.MET),
    ],
)
def test_first_state_that_applies_wins(counts: SliRow, state: State) -> None:
    assert state == evaluate(objective(), counts, quiet(objective())).state


def test_firing_alert_is_at_risk_while_budget_is_left() -> None:
    burned = dict.fromkeys(windows_needed(objective()), Events(900, 100))
    assert State.AT_RISK == evaluate(objective(), row(10**6, 0), burned).state


@pytest.mark.parametrize(
    ("counts", "ratio"),
    [
        (row(0, 0), "1"),
        (row(90, 0, ambiguous=6, lost=4), "9/10"),
        (row(90, 10, excluded=50, measured_ms=45_000, expected_ms=60_000), "3/4"),
        (row(90, 0, ambiguous=10, measured_ms=30_000, expected_ms=60_000), "9/20"),
        (row(90, 0, measured_ms=60_000), "1"),
        (row(90, 0, ambiguous=10, measured_ms=61_000, expected_ms=60_000), "9/10"),
    ],
)
def test_coverage_is_counted_share_times_measured_share(counts: SliRow, ratio: str) -> None:
    assert Fraction(ratio) == coverage_ratio(counts)


def test_a_state_has_its_words_and_its_column_of_the_summary() -> None:
    found = [(state.words, state.column) for state in (State.MET, State.AT_RISK, State.NO_DATA)]
    assert [("Met", "met"), ("At risk", "atRisk"), ("No data", "noData")] == found


numbers = st.integers(0, 10**6)
ranks = {state: rank for rank, state in enumerate([State.VIOLATED, State.AT_RISK, State.MET])}


@given(numbers, numbers, st.sampled_from(["50", "90", "99", "99.9", "99.99999"]), st.sampled_from([*WINDOW_S]))
def test_one_more_bad_event_never_improves_the_state(good: int, bad: int, goal: str, window: str) -> None:
    o = objective(goal, window)
    before, after = (evaluate(o, row(good, bad + more), quiet(o)) for more in (0, 1))
    if before.state is not State.NO_DATA:
        assert ranks[after.state] <= ranks[before.state]


@given(st.tuples(*[numbers] * 4), st.integers(0, 60_000), st.integers(0, 60_000))
def test_coverage_is_a_fraction_of_one(events: tuple[int, int, int, int], measured_ms: int, expected_ms: int) -> None:
    good, bad, ambiguous, lost = events
    seen = row(good, bad, ambiguous=ambiguous, lost=lost, measured_ms=measured_ms, expected_ms=expected_ms)
    assert 0 <= coverage_ratio(seen) <= 1
