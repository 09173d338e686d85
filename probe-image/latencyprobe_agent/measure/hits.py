"""Which of the recent halves one signal explains, and how much of each was waited: nothing counts twice."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.recent import RecentHalves


class Hits:
    """Marks of one signal on the recent halves, by their places."""

    def __init__(self, recent: RecentHalves) -> None:
        self._rows = recent.rows
        self._hit = np.zeros(len(recent.rows), np.uint64)  # the half (its `at`) that was hit last
        self._covered_ns = np.zeros(len(recent.rows), np.int64)  # of that half: until when waits are counted

    def mark(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Mark the halves in these places of the recent ones (intp[n]). Return bool[n]: the first time of a half."""
        first = np.zeros(len(slots), np.bool_)
        first[np.unique(slots, return_index=True)[1]] = True
        first &= self._hit[slots] != self._rows["at"][slots]
        self._covered_ns[slots[first]] = 0
        self._hit[slots] = self._rows["at"][slots]
        return first

    def cover(self, slots: NDArray[np.intp], at_ns: NDArray[np.int64], wait_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return i64[n] ns: what each wait of `wait_ns` that ended at `at_ns` (ascending) adds to the union of its
        half's."""
        new_ns = np.zeros(len(slots), np.int64)
        for i in np.flatnonzero(wait_ns).tolist():
            ended_ns, covered_ns = int(at_ns[i]), int(self._covered_ns[slots[i]])
            new_ns[i] = max(0, ended_ns - max(ended_ns - int(wait_ns[i]), covered_ns))
            self._covered_ns[slots[i]] = max(ended_ns, covered_ns)
        return new_ns
