"""Sparse exponential histograms: quantiles of the counts that a SliRow carries. Pure."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from fractions import Fraction

from latencyprobe.sli import HISTOGRAM_SCALE

BUCKETS_PER_POWER = 2**HISTOGRAM_SCALE


def quantile_ns(histogram: Mapping[int, int], q: Fraction) -> int | None:
    """Return the q-quantile in ns: the geometric middle of its bucket, so within 1.1 % of the exact one.

    `histogram`: count by bucket index as in SliRow. `None` when it is empty. Nearest rank: the smallest duration that
    at least the share q of all events does not exceed.
    """
    return next(iter(quantiles_ns(histogram, (q,))), None)


def quantiles_ns(histogram: Mapping[int, int], shares: Iterable[Fraction]) -> list[int]:
    """Return several quantiles, each as `quantile_ns` does; none when it is empty."""
    indexes = sorted(histogram)
    reached = list(itertools.accumulate(histogram[index] for index in indexes))
    if not reached or not reached[-1]:
        return []
    ranks = (max(1, math.ceil(q * reached[-1])) for q in shares)
    found = (indexes[bisect_left(reached, rank)] for rank in ranks)
    return [round(math.exp2((index + 0.5) / BUCKETS_PER_POWER) * 1e9) for index in found]
