"""Burn-down: how an error budget went over its window, in few steps. Pure and exact."""

import itertools
from collections.abc import Iterable
from fractions import Fraction

from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S

POINTS = 120  # of one burn-down at most; a window that begins within a step has one more
_STEPS_S = (15 * MINUTE_S, 2 * HOUR_S, 6 * HOUR_S, 8 * HOUR_S, DAY_S)


def step_s(window_s: int, at_least_s: int = 0) -> int:
    """Return the shortest step in seconds, of at least so many, with which a window has fewer than POINTS."""
    return next(step for step in _STEPS_S if step >= at_least_s and window_s < step * (POINTS - 1))


def burn_down(bad: Iterable[int], total: int, goal: Fraction) -> tuple[list[int], int]:
    """Return what is left of the window's budget after each step, and all of it, in one unit: of shares all would have
    to be reduced. Below 0: overspent.

    `bad`: bad events of each step; `total`: all events of the window, whose budget is (1 − goal) × total, so that the
    last one is what `budget_remaining` says of the window. Raises ValueError when `total` is 0.
    """
    if total <= 0:
        raise ValueError("no events, no budget")
    whole, unit = (total * (1 - goal)).as_integer_ratio()
    return [whole - spent * unit for spent in itertools.accumulate(bad)], whole
