"""Addresses of callers of which other targets are measured than before: who knows them is told to ask again, of each
node's once in some seconds, however often its agent changes what it measures.
"""

import time
from collections.abc import Callable, Set

from latencyprobe_operator.directory.limits import Bucket

MOVED_S = 5.0  # each who is told asks again then


class Moved:
    """`tell`: tells whoever knows these addresses."""

    def __init__(self, tell: Callable[[Set[str]], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._paces: dict[str, Bucket] = {}
        self._waiting: dict[str, set[str]] = {}  # by node; who waits longest is first

    def add(self, node: str, addresses: Set[str]) -> None:
        """Tell of a node's addresses, and of those that had to wait, as far as it is their time: `node`'s, and those
        of who waits longest."""
        if addresses:
            self._waiting.setdefault(node, set()).update(addresses)
        for one in {node, next(iter(self._waiting), node)} & self._waiting.keys():
            if self._paces.setdefault(one, Bucket(1 / MOVED_S, 1, self._clock)).take():
                self._tell(self._waiting.pop(one))

    def keep(self, nodes: Set[str]) -> None:
        """Forget all other nodes: whose addresses go is told for another reason."""
        for kept in (self._paces, self._waiting):
            for node in kept.keys() - nodes:
                del kept[node]
