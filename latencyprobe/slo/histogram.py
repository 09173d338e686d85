"""Sparse exponential histograms: quantiles of the counts that a SliRow carries. Called by the reports. Pure."""

import math
from collections.abc import Mapping
from fractions import Fraction

from latencyprobe.sli import HISTOGRAM_SCALE

_BUCKETS_PER_POWER = 2**HISTOGRAM_SCALE


def quantile_ns(histogram: Mapping[int, int], q: Fraction) -> int | None:
    """Return the q-quantile in ns: the geometric middle of its bucket, so within 1.1 % of the exact one.

    `histogram`: count by bucket index as in SliRow. `None` when it is empty. Nearest rank: the smallest duration that
    at least the share q of all events does not exceed.
    """
    rank = math.ceil(q * sum(histogram.values()))
    for index in sorted(histogram):
        rank -= histogram[index]
        if rank <= 0 and histogram[index]:
            return round(math.exp2((index + 0.5) / _BUCKETS_PER_POWER) * 1e9)
    return None
