"""Error budgets and burn rates: two formulas, exact. Pure."""

from fractions import Fraction


def burn_rate(good: int, total: int, goal: Fraction) -> Fraction | None:
    """Return how many times faster than allowed the error budget is being spent.

    `goal` is a fraction in (0, 1). `None` when `total` is 0: no data is not success.
    Raises ValueError if `good > total`. Source: SRE workbook, "Alerting on SLOs".
    """
    if good > total:
        raise ValueError(f"{good} good events of {total}")
    return Fraction(total - good, total) / (1 - goal) if total else None


def budget_remaining(good: int, total: int, goal: Fraction) -> Fraction | None:
    """Return the share of the window's error budget that is left: 1 = untouched, below 0 = overspent.

    `None` when `total` is 0. Raises ValueError if `good > total`. The budget is (1 − goal) × total.
    """
    # The whole window is its own burn window: at rate 1 it spends exactly its budget.
    rate = burn_rate(good, total, goal)
    return None if rate is None else 1 - rate
