"""slo/burndown.py: how a budget went, in few steps, and to the same end as the evaluation says."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.slo.burndown import POINTS, burn_down, step_s
from latencyprobe.slo.burnrate import budget_remaining
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S, WINDOW_S

GOAL = Fraction(999, 1000)


@pytest.mark.parametrize(
    ("window", "at_least_s", "expected"),
    [
        ("1d", MINUTE_S, 15 * MINUTE_S),
        ("1d", HOUR_S, 2 * HOUR_S),
        ("7d", HOUR_S, 2 * HOUR_S),
        ("28d", HOUR_S, 6 * HOUR_S),
        ("28d", DAY_S, DAY_S),
        ("30d", HOUR_S, 8 * HOUR_S),
        ("90d", DAY_S, DAY_S),
    ],
)
def test_step_is_the_shortest_with_few_points_and_no_shorter_than_the_rows(
    window: str, at_least_s: int, expected: int
) -> None:
    assert expected == step_s(WINDOW_S[window], at_least_s)
    assert WINDOW_S[window] // expected + 1 <= POINTS


def test_half_of_the_budget_burned_at_once_leaves_half_from_then_on() -> None:
    left, whole = burn_down([0, 5, 0, 15], 10_000, GOAL)
    assert [whole, whole / 2, whole / 2, -whole] == left


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=POINTS),
    st.integers(0, 10**6),
    st.sampled_from(["9/10", "99/100", "9999/10000"]),
)
def test_last_point_is_the_budget_that_is_left(bad: list[int], good: int, goal: str) -> None:
    total = good + sum(bad)
    if total:
        left, whole = burn_down(bad, total, Fraction(goal))
        assert budget_remaining(good, total, Fraction(goal)) == Fraction(left[-1], whole)


def test_without_events_there_is_no_budget() -> None:
    with pytest.raises(ValueError, match="no events, no budget"):
        burn_down([0], 0, GOAL)
