"""slo/burnrate.py: budgets and burn rates, exact."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.slo.burnrate import budget_remaining, burn_rate

goals = st.integers(1, 9_999_999).map(lambda parts: Fraction(parts, 10_000_000))
counts = st.integers(0, 10**12)


def test_rate_one_spends_exactly_the_budget() -> None:
    assert (1, 0) == (burn_rate(999, 1000, Fraction("0.999")), budget_remaining(999, 1000, Fraction("0.999")))


def test_no_events_are_no_success() -> None:
    assert (None, None) == (burn_rate(0, 0, Fraction(1, 2)), budget_remaining(0, 0, Fraction(1, 2)))


def test_more_good_than_total_is_refused() -> None:
    with pytest.raises(ValueError, match="2 good events of 1"):
        burn_rate(2, 1, Fraction(1, 2))


@given(counts, counts, goals)
def test_remaining_follows_its_definition(good: int, bad: int, goal: Fraction) -> None:
    total = good + bad
    remaining = budget_remaining(good, total, goal)
    assert (total == 0) == (remaining is None)
    if remaining is not None:
        assert bad == (1 - remaining) * (1 - goal) * total
        assert remaining <= 1
