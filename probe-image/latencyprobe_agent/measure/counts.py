"""The kernel's counts, added up over CPUs and never wrapping; `kernel.programs` reads them through this.

Everything that SLOs rest on is counted in the kernel per (target set, role, owner), so it is exact when records get
lost. All counters only grow.
"""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.records import EXCHANGE_COUNTS

_NAMES = tuple(EXCHANGE_COUNTS.names or ())

COUNTS = np.dtype([(name, "u8", EXCHANGE_COUNTS[name].shape) for name in _NAMES])
"""`struct exchange_counts` with 64-bit histogram buckets."""


class Widening:
    """Remembers the last histogram of every key: the kernel's buckets are 32 bits wide and wrap."""

    def __init__(self) -> None:
        self._last: dict[bytes, NDArray[np.uint64]] = {}

    def add_up(self, keys: NDArray[np.void], per_cpu: NDArray[np.void]) -> NDArray[np.void]:
        """Return COUNTS[n] for `keys` (COUNTS_KEY[n]) from EXCHANGE_COUNTS[n, CPUs].

        Right as long as no bucket gains 2^32 between two calls for its key.
        """
        total = np.zeros(len(keys), COUNTS)
        for name in _NAMES:
            total[name] = per_cpu[name].sum(axis=1, dtype=np.uint64)
        for key, histogram in zip(keys, total["histogram"], strict=True):
            last = self._last.get(key.tobytes())
            if last is not None:
                histogram[:] = last + (histogram - last).astype(np.uint32)
            self._last[key.tobytes()] = histogram.copy()
        return total
