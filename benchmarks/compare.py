"""What interleaved slices show: paired ratios and differences with bootstrap intervals. Pure functions over arrays.

Method: A and B alternate in short slices, so that drift of a shared host cancels
out; the A/A control beside each A/B shows what the method cannot resolve.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
RESAMPLES = 4000


@dataclass(frozen=True)
class Interval:
    """A median over rounds with its bootstrap 95 % interval."""

    median: float
    low: float
    high: float

    def text(self, form: str) -> str:
        """`1.02 [1.01, 1.03]`, each number in `form`."""
        return f"{self.median:{form}} [{self.low:{form}}, {self.high:{form}}]"


def paired(values: F64, baseline: F64, seed: int = 1) -> Interval:
    """Median over rounds of value ÷ baseline of the same round."""
    return _interval(lambda rows: np.median((values / baseline)[rows], axis=-1), len(values), seed)


def added(values: F64, baseline: F64, seed: int = 1) -> Interval:
    """Median over rounds of value - baseline of the same round."""
    return _interval(lambda rows: np.median((values - baseline)[rows], axis=-1), len(values), seed)


def ratio_of_added(values: F64, others: F64, baseline: F64, seed: int = 1) -> Interval:
    """What `values` add to the baseline ÷ what `others` add to it, each the median over the same resampled rounds."""
    return _interval(
        lambda rows: np.median((values - baseline)[rows], axis=-1) / np.median((others - baseline)[rows], axis=-1),
        len(values),
        seed,
    )


def median(values: F64, seed: int = 1) -> Interval:
    """Median over rounds of the values themselves."""
    return _interval(lambda rows: np.median(values[rows], axis=-1), len(values), seed)


def _interval(statistic: Callable[[NDArray[np.int64]], F64], rounds: int, seed: int) -> Interval:
    rows = np.random.default_rng(seed).integers(0, rounds, (RESAMPLES, rounds))
    low, high = np.percentile(statistic(rows), (2.5, 97.5))
    return Interval(float(statistic(np.arange(rounds))), float(low), float(high))
