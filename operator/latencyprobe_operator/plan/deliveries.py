"""How long it takes from a change in the cluster until the agents that it concerns follow it. Pure.

Only agents that read their plan when it was made are waited for: one that is being started is late for other reasons.
All times are s of the monotonic clock.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

LOST_S = 60.0  # who has not followed by then is not waited for any more
TRACED_NODES = 20  # of one change; all are in the histogram
MAX_OPEN = 100  # changes


class Change(NamedTuple):
    """Plans made anew. `seen_s`: when the first of what they follow was seen; `began_s`, `planned_s`: when planning
    began and ended; `nodes`: how many plans are others now; `namespaces`: in which something had changed."""

    seen_s: float
    began_s: float
    planned_s: float
    nodes: int
    namespaces: tuple[str, ...] = ()


class Delivery(NamedTuple):
    """A change and when nodes followed it, None for those that did not within a minute."""

    change: Change
    followed_s: Mapping[str, float | None]


class _Open:
    def __init__(self, change: Change, generations: Mapping[str, int]) -> None:
        self.change = change
        self.waiting = dict(list(generations.items())[:TRACED_NODES])
        self.followed_s: dict[str, float | None] = {}


class Deliveries:
    """`observers` get the seconds of each node; `delivered` each change once all its nodes follow, or are lost."""

    def __init__(
        self,
        *observers: Callable[[float], object],
        delivered: Callable[[Delivery], object] = lambda _: None,
    ) -> None:
        self._observers = observers
        self._delivered = delivered
        self._pending: dict[str, tuple[int, float]] = {}  # generation, and since when the oldest change waits
        self._open: deque[_Open] = deque()

    def planned(self, change: Change, generations: Mapping[str, int]) -> None:
        """Wait for these nodes to report the generations of their plans."""
        self.expire(change.planned_s)
        for node, generation in generations.items():
            _, since_s = self._pending.get(node, (0, change.seen_s))
            self._pending[node] = generation, min(since_s, change.seen_s)
        if generations:
            self._open.append(_Open(change, generations))
            if len(self._open) > MAX_OPEN:
                self._close(self._open.popleft())

    def followed(self, node: str, generation: int, now_s: float) -> None:
        """Take note that a node's agent has put a plan in force."""
        wanted, since_s = self._pending.get(node, (generation + 1, 0.0))
        if generation < wanted:
            return
        del self._pending[node]
        for observe in self._observers:
            observe(now_s - since_s)
        for one in list(self._open):
            if one.waiting.get(node, generation + 1) <= generation:
                del one.waiting[node]
                one.followed_s[node] = now_s
                if not one.waiting:
                    self._open.remove(one)
                    self._close(one)

    def expire(self, now_s: float) -> None:
        """Give up who has not followed for a minute."""
        while self._open and now_s - self._open[0].change.planned_s > LOST_S:
            self._close(self._open.popleft())
        for node in [n for n, (_, since_s) in self._pending.items() if now_s - since_s > LOST_S]:
            del self._pending[node]

    def _close(self, one: _Open) -> None:
        self._delivered(Delivery(one.change, one.followed_s | dict.fromkeys(one.waiting)))
