"""Figures by peer of the last minutes, in memory: `sqlite.py` keeps them beside its file.

There they would be most of what a minute takes, and nobody asks for older ones. So they are known of the time since
this process began to write, and their room is shared out by namespace: who has more than a share loses his oldest.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec

from latencyprobe.shares import shares
from latencyprobe.sli import PeerCounts, SliRow, worst
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store.levels import down

KEPT_S = 10 * MINUTE_S  # twice what a report tells of: what agents hand in may come minutes later
ROOM = 32 << 20  # bytes: 800 to 1,800 objectives of ten peers each, or 6,000 of two
_ENTRY = 200  # bytes that one takes beside what is packed

_ByPeer = dict[str, PeerCounts]
_Minutes = dict[int, dict[ObjectiveKey, bytes]]


class LastMinutes(NamedTuple):
    """Figures by peer from a minute (`since`, Unix s) on."""

    since: int
    by_peer: Mapping[str, PeerCounts]


class Recent:
    """Of a minute that was not over when this was made, all is known: agents hand it in when it is."""

    def __init__(self, clock: Callable[[], float], room: int = ROOM) -> None:
        self._clock = clock
        self._room = room
        self._began = self._swept = down(int(clock()), MINUTE_S)
        self._since: dict[str, int] = {}  # of namespaces that had no room for all
        self._of: defaultdict[str, _Minutes] = defaultdict(dict)
        self._sizes: defaultdict[str, int] = defaultdict(int)
        self._taken: list[SliRow] = []

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Keep what is added meanwhile, if nothing is raised."""
        self._taken = []
        yield
        for row in self._taken:
            self._keep(row)
        self._make_room()

    def add(self, row: SliRow) -> None:
        """Take in a row that is being stored."""
        if row.by_peer and row.minute >= self._clock() - KEPT_S:
            self._taken.append(row)

    def read(self, key: ObjectiveKey, since: int, until: int) -> LastMinutes:
        """Return the figures of an objective in a window (Unix s), or in the part of it that is known."""
        since = max(since, self._began, self._since.get(key.namespace, 0))
        found = self._of.get(key.namespace, {})
        packed = [of[key] for minute, of in found.items() if since <= minute < until and key in of]
        return LastMinutes(since, worst(*map(_unpacked, packed)))

    def _keep(self, row: SliRow) -> None:
        key, of = key_of(row), self._of[row.namespace].setdefault(row.minute, {})
        before = of.get(key)
        with suppress(OverflowError):  # more than 64 bits: nobody counts so far
            of[key] = msgspec.msgpack.encode(worst(_unpacked(before), row.by_peer) if before else row.by_peer)
            self._sizes[row.namespace] += len(of[key]) - len(before) if before else len(of[key]) + _ENTRY

    def _make_room(self) -> None:
        """Drop what is too old, once a minute, and what is above shares."""
        now = down(int(self._clock()), MINUTE_S)
        if now != self._swept:
            self._swept = now
            self._since = {namespace: since for namespace, since in self._since.items() if since >= now - KEPT_S}
            for namespace in list(self._of):
                for minute in [one for one in self._of[namespace] if one < now - KEPT_S]:
                    self._drop(namespace, minute)
        if sum(self._sizes.values()) <= self._room:
            return
        for namespace, share in shares(self._sizes, self._room).items():
            while self._sizes.get(namespace, 0) > share:
                oldest = min(self._of[namespace])
                self._drop(namespace, oldest)
                self._since[namespace] = max(oldest + MINUTE_S, self._since.get(namespace, 0))

    def _drop(self, namespace: str, minute: int) -> None:
        self._sizes[namespace] -= sum(len(packed) + _ENTRY for packed in self._of[namespace].pop(minute).values())
        if not self._of[namespace]:
            del self._of[namespace], self._sizes[namespace]


def _unpacked(packed: bytes) -> _ByPeer:
    return msgspec.msgpack.decode(packed, type=_ByPeer)
