"""How many series a metric may have for each target set; the rest is folded into `other`, and counted."""

from collections import Counter
from collections.abc import Hashable

from latencyprobe_agent.vocabulary.conventions import Metric

_FOLDED = 10  # times the cap: so many folded series are recognised


class SeriesCap:
    """`overflow`: series that found no room, each once as long as it is recognised. `admit()` precedes a series,
    `release()` follows it."""

    def __init__(self, cap: int) -> None:
        self.overflow = 0
        self._cap = cap
        self._members: Counter[tuple[Metric, int]] = Counter()
        self._folded: set[Hashable] = set()

    def admit(self, metric: Metric, target_set: int, series: Hashable) -> bool:
        """Return whether there is room for one more series, and take it; else it has to be folded."""
        if self._members[metric, target_set] < self._cap:
            self._members[metric, target_set] += 1
            return True
        if series not in self._folded and len(self._folded) < _FOLDED * self._cap:
            self._folded.add(series)
            self.overflow += 1
        return False

    def release(self, metric: Metric, target_set: int) -> None:
        """Give the room of one series back."""
        self._members[metric, target_set] -= 1
