"""Which owners of a target set have series of their own; what the others count is added up under one key.

Receives the counts of living owners, returns as many rows as there may be series. The sum of the others only grows: who
was folded into it stays there as long as it counts, and what it counted stays when it has ended.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.shares import shares
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.telemetry.shared_room import SharedRoom, payer
from latencyprobe_agent.vocabulary.records import COUNTS_KEY

OTHERS = 2**64 - 1  # `owner` of such a row


class _Own(NamedTuple):
    """An owner's row: `room` that it takes of its namespace's share."""

    target_set: int
    namespace: str
    room: int


class OwnerCap:
    """`cap`: owners by role for each target set; `room`: rows of all of them, each once for each target of its set, and
    as many of others. `overflow`: how many owners of each namespace were folded, each once."""

    def __init__(self, cap: int, room: int) -> None:
        self.overflow: Counter[str] = Counter()
        self.room = SharedRoom(room)
        self._cap = cap
        self._most_others = room
        self._own: dict[bytes, _Own] = {}
        self._taken: Counter[int] = Counter()
        self._folded: dict[bytes, NDArray[np.uint64]] = {}  # what each had counted when it was last looked at
        self._others: dict[bytes, NDArray[np.uint64]] = {}
        self._sets: Mapping[int, TargetSet] = {}

    def follow(self, in_force: InForce, living: Counts, anew: Set[int] = frozenset()) -> None:
        """Take a plan. Owners of the target sets that begin `anew` (their numbers) find room anew; of who finds none
        `other` has what is gained from now on, `living` being what `fold` was last called with."""
        self._sets = in_force.rules.sets
        namespaces = {target.namespace for target in in_force.plan.targets}
        self.room.namespaces = len(namespaces)
        self.overflow = Counter({namespace: self.overflow[namespace] for namespace in namespaces})
        own = [
            (key.tobytes(), int(key["target_set"]), words)
            for key, words in zip(living.keys, _words(living), strict=True)
            if int(key["target_set"]) in anew and key.tobytes() in self._own
        ]
        self._forget(key for key, *_ in own)
        for key, target_set, words in own:
            if not self._admit(key, target_set):
                self._folded[key] = words.copy()

    def fold(self, living: Counts) -> Counts:
        """Return the rows of owners with series of their own, then one of the others by target set and role."""
        own = np.zeros(len(living.keys), np.bool_)
        words = _words(living)
        keys = [key.tobytes() for key in living.keys]
        self._forget((self._own.keys() | self._folded.keys()).difference(keys))
        for row, (key, target_set) in enumerate(zip(keys, living.keys["target_set"].tolist(), strict=True)):
            own[row] = key in self._own or (key not in self._folded and self._admit(key, target_set))
            if not own[row]:
                self._add(key, living.keys[row], words[row])
        if not self._others:
            return living
        others = np.frombuffer(b"".join(self._others), COUNTS_KEY)
        values = np.concatenate(list(self._others.values())).view(COUNTS)
        return Counts(np.concatenate([living.keys[own], others]), np.concatenate([living.values[own], values]))

    def told(self, folded: Counts) -> Counts:
        """Return `folded` without what of others there is no room to tell; each namespace tells of its first sets."""
        kept, needs = np.ones(len(folded.keys), np.bool_), Counter[str]()
        rows = np.flatnonzero(folded.keys["owner"] == OTHERS).tolist()
        payers = [payer(self._sets, int(folded.keys["target_set"][row])) for row in rows]
        for namespace, room in payers:
            needs[namespace] += room
        left = shares(needs, self._most_others)
        for row, (namespace, room) in zip(rows, payers, strict=True):
            kept[row] = room <= left[namespace]
            left[namespace] -= room if kept[row] else 0
        return Counts(folded.keys[kept], folded.values[kept])

    def forget(self, keys: Iterable[np.void]) -> None:
        """Forget COUNTS_KEYs that start from 0 when they come again; `fold` has seen their last counts."""
        self._forget(key.tobytes() for key in keys)

    def _forget(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._folded.pop(key, None)
            if key in self._own:
                target_set, namespace, room = self._own.pop(key)
                self._taken[target_set] -= 1
                self.room.give_back(namespace, room)

    def _admit(self, key: bytes, target_set: int) -> bool:
        namespace, room = payer(self._sets, target_set)
        if self._taken[target_set] >= self._cap or not self.room.take(namespace, room):
            return False
        self._own[key] = _Own(target_set, namespace, room)
        self._taken[target_set] += 1
        return True

    def _add(self, key: bytes, where: np.void, words: NDArray[np.uint64]) -> None:
        before = self._folded.get(key)
        self.overflow[payer(self._sets, int(where["target_set"]))[0]] += before is None
        shared = where.copy()
        shared["owner"] = OTHERS
        total = self._others.setdefault(shared.tobytes(), np.zeros_like(words))
        total += words if before is None else words - before
        self._folded[key] = words.copy()


def _words(counts: Counts) -> NDArray[np.uint64]:
    return np.ascontiguousarray(counts.values).view(np.uint64).reshape(-1, COUNTS.itemsize // 8)
