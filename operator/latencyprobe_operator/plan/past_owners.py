"""Which pods had addresses until lately: records of what a pod did last come when it has gone. Pure.

Exact or unknown: an address that two pods claimed was nobody's, and nobody had it before the one before him left, nor
before it was told who leaves.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import Left

KEPT_S = 15.0  # a record comes a second late and waits 4 s for a name; who asks may have to ask again
ROOM = 10_000  # addresses: some 700 pods a second that come and go

Ids = tuple[str, ...]  # of targets


class Past(NamedTuple):
    """Which pod had an address, from when until when (s). `measured`: targets of its client half, when it left."""

    pod: Pod
    began_s: float
    ended_s: float
    measured: Ids


class _End(NamedTuple):
    at_s: float
    past: Past | None  # None: several claimed it


class PastOwners:
    """Looked up by address."""

    def __init__(self) -> None:
        self._since_s = math.inf  # nobody is known to have had an address before
        self._ends: dict[str, _End] = {}  # in their order

    def note(self, left: Iterable[Left], measured: Callable[[str, str], Ids], now_s: float) -> None:
        """Take note of all who have left since the last call. `measured`: the targets for which a pod's client half is
        measured, by its node and uid."""
        for one in left:
            before = self._ends.pop(one.address, None)
            began_s = max(self._since_s, one.at_s - KEPT_S, before.at_s if before is not None else 0.0)
            past = None
            if (pod := one.pod) is not None and began_s < one.at_s:
                past = Past(pod, began_s, one.at_s, measured(pod.node, pod.uid))
            self._ends[one.address] = _End(one.at_s, past)
        self._since_s = min(self._since_s, now_s)
        self._forget(now_s)

    def at(self, address: str, now_s: float) -> Past | None:
        """Return who had an address last; None if that is long ago, or not known for sure."""
        end = self._ends.get(address)
        return end.past if end is not None and now_s - end.at_s < KEPT_S else None

    def nodes_at(self, address: str, now_s: float) -> frozenset[str]:
        """Return the node of who had an address last, if that is known."""
        past = self.at(address, now_s)
        return frozenset() if past is None else frozenset([past.pod.node])

    def _forget(self, now_s: float) -> None:
        while self._ends:
            address, oldest = next(iter(self._ends.items()))
            if now_s - oldest.at_s < KEPT_S and len(self._ends) <= ROOM:
                return
            del self._ends[address]
            self._since_s = max(self._since_s, oldest.at_s)
