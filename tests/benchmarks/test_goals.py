from pathlib import Path

import pytest

from benchmarks.compare import Interval
from benchmarks.goals import GOALS, Goal

PAGE = Path(__file__).parents[2] / "docs" / "design" / "cost.md"
RATIO = Goal("x", "a ratio", 1.15)
QUIET = Interval(1.0, 0.99, 1.01)


def around(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1.0, 1.14, "met"), (1.16, 1.2, "not met"), (1.0, 1.2, "not resolved")]
)
def test_a_goal_inside_the_interval_is_not_resolved(low, high, expected):
    assert expected == RATIO.verdict(around(low, high), QUIET)


def test_a_control_that_is_wider_than_the_margin_resolves_nothing():
    assert RATIO.verdict(around(1.0, 1.01), around(0.9, 1.1)) == "not resolved"
    assert RATIO.verdict(around(1.5, 1.6), around(0.9, 1.1)) == "not resolved"


def test_the_upper_end_may_lie_above_the_goal_where_the_goal_says_so():
    goal = Goal("x", "p99", 1.03, upper=1.06)
    assert goal.verdict(Interval(1.02, 1.0, 1.05), QUIET) == "met"
    assert goal.verdict(Interval(1.02, 1.0, 1.07), QUIET) == "not resolved"
    assert goal.verdict(Interval(1.05, 1.04, 1.06), QUIET) == "not met"


def test_of_what_is_to_be_large_the_lower_end_counts():
    goal = Goal("x", "how much faster", 50, at_least=True)
    assert goal.verdict(around(60, 80), None) == "met"
    assert goal.verdict(around(40, 80), None) == "not resolved"
    assert goal.verdict(around(10, 12), None) == "not met"


def test_what_has_no_goal_is_stated():
    assert Goal("x", "a statement", None).verdict(around(1, 2), around(0, 9)) == "stated"


def test_the_margin_of_an_amount_begins_at_nothing():
    goal = Goal("x", "share of a core", 2, unit=" %", neutral=0)
    assert goal.verdict(around(0.9, 1.1), around(-0.9, 0.9)) == "met"
    assert goal.verdict(around(0.9, 1.1), around(-1.1, 1.1)) == "not resolved"


@pytest.mark.parametrize("goal", GOALS.values(), ids=list(GOALS))
def test_the_page_on_cost_has_the_goals_of_the_bench(goal):
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {goal.id} ")]
    assert [goal.text] == [row.split(" | ")[2] for row in rows]
