"""Durations to buckets of the OpenTelemetry base-2 exponential histogram, exactly as the kernel does it.

Scale 5: bucket i holds (2^(i/32), 2^((i+1)/32)] seconds. Durations are whole ns, and a bound of B ns lies below the
integer v exactly if floor(B) does (the bounds that are no whole numbers are irrational), so tables of floors give
exact answers; no logarithm is taken. For histograms that come from records (by peer, of stages, of `network`); the
kernel's own table is written from here too (`scripts/gen_histogram.py`).
"""

import math

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS, HISTOGRAM_MIN, HISTOGRAM_SCALE

PER_OCTAVE = 1 << HISTOGRAM_SCALE


def bound_ns(index: int) -> int:
    """Return floor(10^9 · 2^(index/32)), the exclusive lower bound of bucket `index` in ns.

    The 32nd root is five integer square roots, and floor(sqrt(floor(x))) = floor(sqrt(x)).
    """
    one_second: int = (10**9) ** PER_OCTAVE
    power = one_second << index if index >= 0 else one_second >> -index
    for _ in range(HISTOGRAM_SCALE):
        power = math.isqrt(power)
    return power


_INNER_BOUNDS_NS = np.array([bound_ns(HISTOGRAM_MIN + i) for i in range(1, HISTOGRAM_BUCKETS)], dtype=np.int64)


# A cell is 1/64 of a power of two: the widest, 1.6 %, is narrower than a bucket, 2.2 %, so it has one bound at most.
# The cell of a number is the highest bits of its float.
_CELL_BITS = 6
_SHIFT = np.int64(52 - _CELL_BITS)
_ONE = int(np.float64(1).view(np.int64)) >> int(_SHIFT)
_CELLS_NS = (np.arange(_ONE, _ONE + (int(_INNER_BOUNDS_NS[-1]).bit_length() << _CELL_BITS)) << _SHIFT).view(np.float64)
_LOWEST = np.searchsorted(_INNER_BOUNDS_NS, np.ceil(_CELLS_NS).astype(np.int64), side="left")
_BOUND_NS = np.append(_INNER_BOUNDS_NS, np.iinfo(np.int64).max)[_LOWEST]


def positions(duration_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each duration in the array `exchange_counts.histogram`, 0..HISTOGRAM_BUCKETS-1.

    Place p is the OpenTelemetry bucket p + HISTOGRAM_MIN; shorter and longer durations fall in the first and last.
    """
    cell = duration_ns.astype(np.float64).view(np.int64)
    cell >>= _SHIFT
    cell -= _ONE
    np.maximum(cell, 0, out=cell)
    np.minimum(cell, len(_CELLS_NS) - 1, out=cell)
    place: NDArray[np.int64] = _LOWEST.take(cell)
    place += duration_ns > _BOUND_NS.take(cell)
    return place


def sparse(histogram: NDArray[np.integer]) -> dict[int, int]:
    """Turn an array of HISTOGRAM_BUCKETS counts into {OpenTelemetry bucket index: count}, without the empty ones."""
    filled = np.flatnonzero(histogram)
    return dict(zip((filled + HISTOGRAM_MIN).tolist(), histogram[filled].tolist(), strict=True))
