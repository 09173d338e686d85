"""Evaluation: counts of an objective's windows in, its state out. Pure and exact.

The order of the states is a rule (docs/design/objectives.md, "States"): too few events say nothing, a spent budget is
spent whatever else was missed, and an incomplete view must not look healthy.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, Self

from latencyprobe.sli import SliRow
from latencyprobe.slo.burnrate import budget_remaining, burn_rate
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import Alert, alerts
from latencyprobe.spec import goal_fraction

COMPLETE_FROM = Fraction(90, 100)
RISKY_BELOW = Fraction(25, 100)


class State(StrEnum):
    """What an objective is in, worst first: the order of reports. `colour`: of its words in a table."""

    VIOLATED = "Violated", "bold red"
    AT_RISK = "AtRisk", "bold yellow"
    INCOMPLETE = "Incomplete", "bold magenta"
    NO_DATA = "NoData", "dim"
    MET = "Met", "green"

    colour: str

    def __new__(cls, value: str, colour: str) -> Self:
        """Return the state that a report writes as `value`."""
        state = str.__new__(cls, value)
        state._value_, state.colour = value, colour
        return state

    @property
    def words(self) -> str:
        """Return it as a person reads it: `At risk`."""
        return self.name.replace("_", " ").capitalize()

    @property
    def column(self) -> str:
        """Return its field in the summary of a report: `atRisk`."""
        return self.value[0].lower() + self.value[1:]


BUDGET_LEFT = (State.AT_RISK, State.MET)  # what a view with gaps must not look like


class Events(NamedTuple):
    """SLI events of one window."""

    good: int
    bad: int

    @property
    def total(self) -> int:
        """All events."""
        return self.good + self.bad


class Burn(NamedTuple):
    """One alert, evaluated. A rate is `None` where its window has no events."""

    alert: Alert
    long_rate: Fraction | None
    short_rate: Fraction | None
    firing: bool


class Evaluation(NamedTuple):
    """The verdict. `sli` and `remaining` are `None` without events; `coverage` is a fraction of 1."""

    state: State
    sli: Fraction | None
    remaining: Fraction | None
    burns: tuple[Burn, ...]
    coverage: Fraction
    events_needed: int


def windows_needed(objective: Objective) -> frozenset[int]:
    """Return the lengths in seconds of all burn-rate windows that `evaluate` wants to know about."""
    rows = alerts(objective.window, goal_fraction(objective.goal))
    return frozenset(length for row in rows for length in (row.long_s, row.short_s))


def events_needed(goal: Fraction, min_events: int) -> int:
    """Return how many events a window must have: one bad event of fewer than 1/(1 − goal) would spend its budget."""
    return max(min_events, math.ceil(1 / (1 - goal)))


def coverage_ratio(row: SliRow) -> Fraction:
    """Return how complete the counts are, as a fraction of 1.

    counted / (counted + ambiguous + lost) × measured time / expected time. Where nothing was seen or no time was
    expected, that part is 1; measured time above the expected does not make up for lost events.
    """
    seen = row.coverage
    counted = row.good + row.bad
    known = counted + seen.ambiguous + seen.lost
    events = Fraction(counted, known) if known else Fraction(1)
    time = Fraction(min(seen.measured_ms, seen.expected_ms), seen.expected_ms) if seen.expected_ms else Fraction(1)
    return events * time


def share_of_good(row: SliRow) -> Fraction | None:
    """Return the SLI of a row, `None` without events."""
    return Fraction(row.good, row.good + row.bad) if row.good + row.bad else None


def evaluate(objective: Objective, row: SliRow, burned: Mapping[int, Events]) -> Evaluation:
    """Return the verdict on `row`, the sum of the objective's window.

    `burned`: the events of each window of `windows_needed`, by its length in seconds; an alert one of whose windows
    is not there is not told.
    """
    goal = goal_fraction(objective.goal)
    events = Events(row.good, row.bad)
    remaining = budget_remaining(events.good, events.total, goal)
    told = (alert for alert in alerts(objective.window, goal) if {alert.long_s, alert.short_s} <= burned.keys())
    burns = tuple(_burn(alert, goal, burned, objective.min_events) for alert in told)
    coverage = coverage_ratio(row)
    needed = events_needed(goal, objective.min_events)
    if remaining is None or events.total < needed:
        state = State.NO_DATA
    elif remaining <= 0:
        state = State.VIOLATED
    elif coverage < COMPLETE_FROM:
        state = State.INCOMPLETE
    elif remaining < RISKY_BELOW or any(burn.firing for burn in burns):
        state = State.AT_RISK
    else:
        state = State.MET
    return Evaluation(state, share_of_good(row), remaining, burns, coverage, needed)


def _burn(alert: Alert, goal: Fraction, burned: Mapping[int, Events], min_events: int) -> Burn:
    long, short = burned[alert.long_s], burned[alert.short_s]
    long_rate, short_rate = (burn_rate(events.good, events.total, goal) for events in (long, short))
    firing = (
        long.total >= min_events
        and long_rate is not None
        and short_rate is not None
        and min(long_rate, short_rate) > alert.factor
    )
    return Burn(alert, long_rate, short_rate, firing)
