"""What became of an objective over time: the burn-down of its budget, and its window a week before.

Asks the store; the arithmetic is that of slo/.
"""

from fractions import Fraction
from typing import NamedTuple

from latencyprobe.report import units
from latencyprobe.report.model import BurnDown, WeekBefore
from latencyprobe.slo.burndown import burn_down, step_s
from latencyprobe.slo.burnrate import budget_remaining
from latencyprobe.slo.evaluate import Events, events_needed, share_of_good
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import DAY_S, WINDOW_S
from latencyprobe.spec import goal_fraction
from latencyprobe.store import Counts, Horizons

_WEEK_S = 7 * DAY_S


class When(NamedTuple):
    """The moment of a report, Unix s. `since_s`: for how many seconds back its figures are, if not for each window.
    `past`: it is over, and at a bound of the finest rows that tell of it."""

    now: int
    since_s: int | None = None
    past: bool = False

    @property
    def until(self) -> int:
        """Return the end of its windows: with the current second, which at a full minute is in a row of its own."""
        return self.now if self.past else self.now + 1


def burned(store: Counts, objective: Objective, when: When, whole: Events, kept: Horizons) -> BurnDown | None:
    """Return how the budget went, `None` without events. `whole`: those of the window; `kept`: the store's horizons.

    Steps begin at multiples of their length in Unix time, so that they are the same ones a minute later; the first one
    has what is of the window.
    """
    window_s = WINDOW_S[objective.window]
    since = when.now - window_s
    step = step_s(window_s, kept.finest_s(since))
    begin = -(-since // step) * step
    later = store.events_by_step(objective.key, begin, when.until, step)
    counted = [sum(column) for column in zip((0, 0), *later, strict=True)]
    first_of_all = Events(*(max(of_all - of_later, 0) for of_all, of_later in zip(whole, counted, strict=True)))
    steps = [first_of_all, *later]
    first = next((i for i, events in enumerate(steps) if events.total > 0), None)
    total = sum(events.total for events in steps)
    if first is None or total <= 0:
        return None
    left, of_whole = burn_down((events.bad for events in steps), total, goal_fraction(objective.goal))
    return BurnDown(
        since=units.iso((begin + (first - 1) * step) * 10**9),
        step=units.time_span(step),
        left=tuple(units.percent_of(part, of_whole, 1) for part in left[first:]),
    )


def week_before(
    store: Counts, objective: Objective, when: When, first: int | None, kept: Horizons
) -> WeekBefore | None:
    """Return the window a week before; `None` where the store does not hold all of it, it has too few events, or
    figures are of other windows.

    `first`: the first minute of the series; `kept`: the store's horizons.
    """
    if when.since_s is not None:
        return None
    goal = goal_fraction(objective.goal)
    until = when.until - _WEEK_S
    until -= until % kept.finest_s(until)  # what a wider row has of later is not told
    since = until - WINDOW_S[objective.window]
    if first is None or max(first, kept.days) > since:
        return None
    row = store.read(objective.key, since, until, exemplars=False)
    sli, left = share_of_good(row), budget_remaining(row.good, row.good + row.bad, goal)
    if sli is None or left is None or row.good + row.bad < events_needed(goal, objective.min_events):
        return None
    stage = max(row.dominant, key=lambda name: row.dominant[name], default="")
    return WeekBefore(
        events=row.good + row.bad,
        bad=row.bad,
        sli=units.percent(sli, 5),
        error_budget_remaining=units.percent(left, 1),
        p99=next(iter(units.quantiles(row.histogram, units.P99)), ""),
        stage=stage[:63],
        share=units.percent(Fraction(min(row.dominant[stage], row.bad), row.bad), 1) if stage and row.bad else "",
    )
