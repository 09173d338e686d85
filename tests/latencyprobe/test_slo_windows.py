"""The golden table of alerts for every goal and window: docs/design/objectives.md, "Windows and alerts"."""

from fractions import Fraction

import pytest

from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S, Severity, alerts
from latencyprobe.spec import goal_fraction

PAGE_FAST = (Severity.PAGE, 1 * HOUR_S, 5 * MINUTE_S)
PAGE_SLOW = (Severity.PAGE, 6 * HOUR_S, 30 * MINUTE_S)
TICKET_FAST = (Severity.TICKET, 1 * DAY_S, 2 * HOUR_S)
TICKET_SLOW = (Severity.TICKET, 3 * DAY_S, 6 * HOUR_S)

# Factors by hand: budget share × window / long window; 28 d takes the workbook's 30 d.
FACTORS = {
    "1d": {},
    "7d": {PAGE_FAST: "3.36", PAGE_SLOW: "1.4"},
    "28d": {PAGE_FAST: "14.4", PAGE_SLOW: "6", TICKET_FAST: "3", TICKET_SLOW: "1"},
    "30d": {PAGE_FAST: "14.4", PAGE_SLOW: "6", TICKET_FAST: "3", TICKET_SLOW: "1"},
    "90d": {PAGE_FAST: "43.2", PAGE_SLOW: "18", TICKET_FAST: "9", TICKET_SLOW: "3"},
}
# With goal 90 the fastest possible burn rate is 10, with 99 it is 100, with 99.9 1,000, with 99.99 10,000.
UNREACHABLE = {("90", "28d"): {PAGE_FAST}, ("90", "30d"): {PAGE_FAST}, ("90", "90d"): {PAGE_FAST, PAGE_SLOW}}


@pytest.mark.parametrize("goal", ["90", "99", "99.9", "99.99"])
@pytest.mark.parametrize("window", FACTORS)
def test_alerts_have_the_golden_factors(goal: str, window: str) -> None:
    rows = alerts(window, goal_fraction(goal))
    assert {row: Fraction(factor) for row, factor in FACTORS[window].items()} == {row[:3]: row.factor for row in rows}
    assert UNREACHABLE.get((goal, window), set()) == {row[:3] for row in rows if row.unreachable}


def test_factor_that_equals_the_fastest_burn_rate_is_unreachable() -> None:
    page_slow = alerts("30d", 1 - Fraction(1, 6))[1]
    assert (6, True) == (page_slow.factor, page_slow.unreachable)
