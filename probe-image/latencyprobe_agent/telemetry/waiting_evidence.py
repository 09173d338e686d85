"""Records of evidence that wait beside the rows of the spans that they explain."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.evidence import Joined
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.telemetry.span_rows import Noted, parted


class WaitingEvidence:
    """At most `capacity` records. `unshown`: those that found no room."""

    def __init__(self, capacity: int) -> None:
        self.unshown = 0
        self._capacity = capacity
        self._noted: list[Noted] = []

    def note(self, explains: Explains, joined: Joined, number: NDArray[np.int64]) -> None:
        """Keep what explains a span. `number`: of the span that each record explains, -1 if none."""
        at = np.flatnonzero(number >= 0)
        fits = at[: self._capacity - sum(len(noted.number) for noted in self._noted)]
        self.unshown += len(at) - len(fits)
        if len(fits):
            records, wait_ns = joined.evidence.rec.take(fits), joined.wait_ns[fits]
            self._noted.append(Noted(explains, number[fits].astype(np.uint64), records, wait_ns))

    def take(self, number: NDArray[np.uint64]) -> list[Noted]:
        """Return what explains the spans with these numbers, and keep the rest."""
        taken, self._noted = parted(self._noted, number)
        return taken
