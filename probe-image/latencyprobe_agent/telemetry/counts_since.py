"""Counts from where their target sets began anew: what rows had by then is taken off."""

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.counts import COUNTS, Counts


class CountsSince:
    """What each row had counted when its number began anew, by COUNTS_KEY."""

    def __init__(self) -> None:
        self._before: dict[bytes, NDArray[np.uint64]] = {}

    def begin_anew(self, counts: Counts, numbers: Collection[int]) -> NDArray[np.void]:
        """Let the rows of these target sets begin at 0, of `counts` as they are now. Return their keys."""
        rows = np.flatnonzero(np.isin(counts.keys["target_set"], list(numbers)))
        for key, words in zip(counts.keys[rows], _words(counts.values[rows]), strict=True):
            self._before[key.tobytes()] = words
        return counts.keys[rows]

    def forget(self, keys: Iterable[np.void]) -> None:
        """Forget COUNTS_KEYs that start from 0 when they come again."""
        for key in keys:
            self._before.pop(key.tobytes(), None)

    def of(self, counts: Counts) -> Counts:
        """Return what rows have counted since, of those that have."""
        if not self._before:
            return counts
        words = _words(counts.values)
        for row, key in enumerate(counts.keys):
            words[row] -= self._before.get(key.tobytes(), np.uint64(0))
        more = words.any(axis=1)
        return Counts(counts.keys[more], words[more].view(COUNTS).reshape(-1))


def _words(values: NDArray[np.void]) -> NDArray[np.uint64]:
    """Return a copy of COUNTS[n] as u64[n, words]."""
    return np.array(values).view(np.uint64).reshape(-1, COUNTS.itemsize // 8)
