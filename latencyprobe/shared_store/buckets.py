"""Buckets of durations as servers have them → the buckets of a SliRow. Pure.

OTLP's exponential histograms are native histograms in Prometheus, with bounds at powers of 2^(1/32), and ranges with
rounded bounds in VictoriaMetrics. Buckets that are wider than ours would make quantiles worse than reports say.
"""

import math
from collections.abc import Iterable

from latencyprobe.shared_store.answers import Bucket, Series
from latencyprobe.shared_store.questions import VMRANGE
from latencyprobe.sli import HISTOGRAM_INDEXES
from latencyprobe.slo.histogram import BUCKETS_PER_POWER

_WIDEST = 2 ** (1 / BUCKETS_PER_POWER) * 1.002  # VictoriaMetrics writes 4 digits


def histogram(buckets: Iterable[Bucket]) -> dict[int, float] | None:
    """Return counts by index; `None` where a bucket is wider than ours, or holds what is no duration."""
    counts: dict[int, float] = {}
    for lower, upper, events in buckets:
        if events <= 0 or lower < 0 < upper:  # the last: around zero
            continue
        if not 0 < upper < math.inf or lower <= 0 or upper / lower > _WIDEST:
            return None
        index = round(BUCKETS_PER_POWER * math.log2(math.sqrt(lower * upper)) - 0.5)
        index = min(max(index, HISTOGRAM_INDEXES[0]), HISTOGRAM_INDEXES[-1])
        counts[index] = counts.get(index, 0) + events
    return counts


def of_range(series: Series) -> list[Bucket]:
    """Return the bucket of a series with VictoriaMetrics' range (`1.000e-03...1.022e-03`), none of another's."""
    lower, dots, upper = series.labels.get(VMRANGE, "").partition("...")
    try:
        return [Bucket(float(lower), float(upper), series.total)] if dots else []
    except ValueError:
        return []
