"""How much is kept of each namespace's objects, so that one that makes them without end leaves the operator's memory to
the others.

What there is no room for is as if it were not there: nobody's target, nobody's name.
"""

import logging
from collections import Counter

import msgspec

log = logging.getLogger(__name__)

ROOM = 128 << 20  # bytes: a quarter of the chart's limit of memory; 60,000 usual pods
NAMED = 1_000  # of a namespace's objects that were left out; of more it is only known that there are
_BYTES = 3  # of memory for each of an object as JSON: 2 of a usual pod, 5 of one with many short labels

_encoder = msgspec.json.Encoder()


class NamespaceRoom:
    """`what`: which objects these are; `most`: estimated bytes of memory for all together. A namespace may have half of
    it while there is room, and an equal share of that half always. `left_out`: kinds and names of what has none, by
    namespace."""

    def __init__(self, most: int = ROOM, what: str = "pods, Services and EndpointSlices") -> None:
        self._what = what
        self.left_out: dict[str, set[tuple[str, str]]] = {}
        self._most = most
        self._bytes: Counter[str] = Counter()
        self._whole = 0

    def take(self, namespace: str, kind: str, name: str, size: int, before: int) -> bool:
        """Take an object in the place of what it was; returns False where there is no room for it: then it is gone."""
        self.gone(namespace, kind, name, before)
        own, others = self._bytes[namespace] + size, len(self._bytes) - (namespace in self._bytes)
        if own * (1 + others) <= self._most // 2 or (own <= self._most // 2 and self._whole + size <= self._most):
            self._add(namespace, size)
            return True
        if namespace not in self.left_out:
            why = f"its {self._what} take more of the operator's memory than its share"
            log.warning("%s: %s: some are left out, and not measured", namespace, why)
        names = self.left_out.setdefault(namespace, set())
        if len(names) < NAMED:
            names.add((kind, name))
        return False

    def gone(self, namespace: str, kind: str, name: str, size: int) -> bool:
        """Take note that there is no such object any more; returns whether it had been left out."""
        self._add(namespace, -size)
        names = self.left_out.get(namespace, set())
        if (kind, name) not in names:
            return False
        names.remove((kind, name))
        if not names:
            del self.left_out[namespace]
        return True

    def lacks(self, kind: str) -> bool:
        """Return whether objects of a kind were left out: there may be room for them now."""
        return any(one[0] == kind for names in self.left_out.values() for one in names)

    def count(self) -> Counter[str]:
        """Return how many objects are left out, by kind."""
        return Counter(kind for names in self.left_out.values() for kind, _ in names)

    def _add(self, namespace: str, more: int) -> None:
        self._bytes[namespace] += more
        self._whole += more
        if not self._bytes[namespace]:
            del self._bytes[namespace]


def size_of(item: object | None) -> int:
    """Return the bytes that an object takes, about."""
    return 0 if item is None else _BYTES * len(_encoder.encode(item))
