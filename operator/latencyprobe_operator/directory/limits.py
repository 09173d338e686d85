"""Bounds of the directory: refusals with an HTTP status, token buckets, and what is remembered of nodes."""

import time
from collections import OrderedDict
from collections.abc import Callable, Set
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

MAX_BODY_BYTES = 4 << 20  # a batch of SLI rows; every other body is far smaller
MAX_ROWS = 10_000
MAX_INSTANCE = 253  # characters; agents send 36
MAX_SEQUENCE = 1 << 53
MAX_HALVES = 500  # of one request
MAX_STREAMS = 10_000  # twice the nodes of the largest cluster that we plan for
SOURCES = 4_096  # addresses and their like of which bounds are remembered


class Refused(Exception):  # noqa: N818 - an answer, no fault of ours
    """A request is refused. `status`: HTTP status; the message names what is wrong and what to do.
    `retry_after_s`: when to come again, 0 = as the caller likes."""

    def __init__(self, status: int, message: str, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class Bucket:
    """A token bucket: `burst` at once, `per_s` in the long run."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()

    def empty(self) -> bool:
        """Return whether nothing can be taken now."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._per_s)
        self._at = now
        return self._level < 1

    def take(self) -> bool:
        """Take one; returns False when there is none."""
        if self.empty():
            return False
        self.spend(1)
        return True

    def spend(self, amount: float) -> None:
        """Take as much, whether it is there or not: what is missing comes first."""
        self._level -= amount

    @property
    def wait_s(self) -> float:
        """In how many seconds one can be taken."""
        return (1 - self._level) / self._per_s if self.empty() else 0.0


class Recent(Generic[K, T]):
    """What is remembered of those who came last, of so many of them; `make` begins it."""

    def __init__(self, most: int, make: Callable[[], T]) -> None:
        self._most = most
        self._make = make
        self._of: OrderedDict[K, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def of(self, key: K) -> T:
        """Return one's own, who is the last now."""
        if key not in self._of:
            self._of[key] = self._make()
            if len(self._of) > self._most:
                self._of.popitem(last=False)
        self._of.move_to_end(key)
        return self._of[key]


class ByNode(Generic[T]):
    """What is remembered of each node that has called; `make` begins it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._of: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, node: str) -> T:
        """Return a node's own."""
        if node not in self._of:
            self._of[node] = self._make()
        return self._of[node]

    def keep(self, nodes: Set[str]) -> None:
        """Forget all other nodes: one that comes back under its name begins anew."""
        for node in self._of.keys() - nodes:
            del self._of[node]
