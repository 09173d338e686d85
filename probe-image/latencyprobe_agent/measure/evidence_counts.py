"""What a signal of evidence counted in the kernel, as what was gained since the reading before.

Exact whatever became of its records. Owners end: what the kernel's table keeps of them may go once it grows no more.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.table import EvidenceSignal
from latencyprobe_agent.vocabulary.records import EVIDENCE_COUNTS


class Gained(NamedTuple):
    """What one signal counted since the reading before. `keys` COUNTS_KEY[n]; `values` EVIDENCE_COUNTS[n], none 0."""

    signal: EvidenceSignal
    keys: NDArray[np.void]
    values: NDArray[np.void]


class Growth:
    """Remembers the last reading of one signal's counts."""

    def __init__(self, signal: EvidenceSignal) -> None:
        self._signal = signal
        self._last: dict[bytes, NDArray[np.void]] = {}
        self._quiet: set[bytes] = set()

    def since(self, keys: NDArray[np.void], values: NDArray[np.void]) -> Gained:
        """Return what these counts, as they are now, have gained."""
        words = EVIDENCE_COUNTS.itemsize // 8
        now, nothing = values.view(np.uint64).reshape(-1, words), np.zeros(words, np.uint64)
        names = [key.tobytes() for key in keys]
        before = [self._last.get(name, nothing) for name in names]
        gained = now - np.array(before, np.uint64).reshape(-1, words)
        grew = np.any(gained != 0, axis=1)
        self._last = dict(zip(names, now, strict=True))
        self._quiet.difference_update(name for name, more in zip(names, gained, strict=True) if more.any())
        return Gained(self._signal, keys[grew], gained[grew].view(EVIDENCE_COUNTS).reshape(-1))

    def over(self, keys: NDArray[np.void], ended: Callable[[int], bool]) -> NDArray[np.void]:
        """Return those of COUNTS_KEY[n] that may go: their owner had ended at the call before, and nothing was
        gained since. A minute between two calls is enough."""
        names = [(key, key.tobytes()) for key in keys if key["owner"] and ended(int(key["owner"]))]
        rows = [key for key, name in names if name in self._quiet]
        for key in rows:
            del self._last[key.tobytes()]
        self._quiet = {name for _, name in names} - {key.tobytes() for key in rows}
        return np.array(rows, keys.dtype)
