"""Windows of objectives, and the table of burn-rate alerts that fits each. Read by evaluate.py and the reports. Pure.

Source of the table: Google, The Site Reliability Workbook, chapter 5 "Alerting on SLOs", table 5-8, as Sloth ships it:
https://sre.google/workbook/alerting-on-slos/
"""

from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86400

WINDOW_S = {"1d": DAY_S, "7d": 7 * DAY_S, "28d": 28 * DAY_S, "30d": 30 * DAY_S, "90d": 90 * DAY_S}


class Severity(StrEnum):
    """How loud an alert is."""

    PAGE = "page"
    TICKET = "ticket"


class _Row(NamedTuple):
    severity: Severity
    long_s: int
    short_s: int
    budget_share: Fraction  # of the whole budget, spent within the long window when the alert fires


_TABLE = (
    _Row(Severity.PAGE, 1 * HOUR_S, 5 * MINUTE_S, Fraction(2, 100)),  # factor 14.4 at 30 d
    _Row(Severity.PAGE, 6 * HOUR_S, 30 * MINUTE_S, Fraction(5, 100)),  # 6
    _Row(Severity.TICKET, 1 * DAY_S, 2 * HOUR_S, Fraction(10, 100)),  # 3
    _Row(Severity.TICKET, 3 * DAY_S, 6 * HOUR_S, Fraction(10, 100)),  # 1
)


class Alert(NamedTuple):
    """One row as it applies to an objective: fires while both windows burn faster than `factor`.

    `unreachable`: even if every event is bad the burn rate does not exceed the factor.
    """

    severity: Severity
    long_s: int
    short_s: int
    factor: Fraction
    unreachable: bool


@lru_cache(maxsize=256)
def alerts(window: str, goal: Fraction) -> tuple[Alert, ...]:
    """Return the alerts of an objective with this window and this goal (a fraction in (0, 1)).

    28 d and 30 d use the workbook's factors; other windows skip rows with a factor of at most 1 (a window that merely
    spends its budget would fire) and rows whose long window is over a quarter of the window.
    """
    window_s = WINDOW_S[window]
    workbook = window in ("28d", "30d")
    factor_window_s = WINDOW_S["30d"] if workbook else window_s
    kept = []
    for row in _TABLE:
        factor = row.budget_share * factor_window_s / row.long_s
        if workbook or (factor > 1 and 4 * row.long_s <= window_s):
            kept.append(Alert(row.severity, row.long_s, row.short_s, factor, factor >= 1 / (1 - goal)))
    return tuple(kept)
