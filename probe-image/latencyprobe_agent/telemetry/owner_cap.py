"""Which owners of a target set have series of their own; what the others count is added up under one key.

Receives the counts of living owners, returns as many rows as there may be series. The sum of the others only grows: who
was folded into it stays there as long as it counts, and what it counted stays when it has ended.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.vocabulary.records import COUNTS_KEY

OTHERS = 2**64 - 1  # `owner` of such a row


class OwnerCap:
    """`cap`: owners by role for each target set. `overflow`: how many were folded, each once."""

    def __init__(self, cap: int) -> None:
        self.overflow = 0
        self._cap = cap
        self._own: dict[bytes, int] = {}
        self._taken: Counter[int] = Counter()
        self._folded: dict[bytes, NDArray[np.uint64]] = {}  # what each had counted when it was last looked at
        self._others: dict[bytes, NDArray[np.uint64]] = {}

    def fold(self, living: Counts) -> Counts:
        """Return the rows of owners with series of their own, then one of the others by target set and role."""
        own = np.zeros(len(living.keys), np.bool_)
        words = np.ascontiguousarray(living.values).view(np.uint64).reshape(-1, COUNTS.itemsize // 8)
        keys = [key.tobytes() for key in living.keys]
        self._forget((self._own.keys() | self._folded.keys()).difference(keys))
        for row, (key, target_set) in enumerate(zip(keys, living.keys["target_set"].tolist(), strict=True)):
            if key not in self._own and key not in self._folded and self._taken[target_set] < self._cap:
                self._own[key] = target_set
                self._taken[target_set] += 1
            own[row] = key in self._own
            if not own[row]:
                self._add(key, living.keys[row], words[row])
        if not self._others:
            return living
        others = np.frombuffer(b"".join(self._others), COUNTS_KEY)
        values = np.concatenate(list(self._others.values())).view(COUNTS)
        return Counts(np.concatenate([living.keys[own], others]), np.concatenate([living.values[own], values]))

    def forget(self, keys: Iterable[np.void]) -> None:
        """Forget COUNTS_KEYs that start from 0 when they come again; `fold` has seen their last counts."""
        self._forget(key.tobytes() for key in keys)

    def _forget(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._folded.pop(key, None)
            if key in self._own:
                self._taken[self._own.pop(key)] -= 1

    def _add(self, key: bytes, where: np.void, words: NDArray[np.uint64]) -> None:
        before = self._folded.get(key)
        self.overflow += before is None
        shared = where.copy()
        shared["owner"] = OTHERS
        total = self._others.setdefault(shared.tobytes(), np.zeros_like(words))
        total += words if before is None else words - before
        self._folded[key] = words.copy()
