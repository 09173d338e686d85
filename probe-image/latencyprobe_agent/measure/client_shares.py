"""What server halves lost was lost to their callers too: kept until the callers' halves have ended."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.evidence import Shared
from latencyprobe_agent.measure.hits import Hits
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.vocabulary.records import Role


class ClientShares:
    """The losses of one signal, by join key. `limit`: of those that wait for a client half."""

    def __init__(self, recent: RecentHalves, hits: Hits, limit: int) -> None:
        self._recent = recent
        self._hits = hits
        self._limit = limit
        self._lost_ns: dict[int, int] = {}
        self._noted = False  # since the recent halves were last looked at
        self._kept = 0  # how many there had been by then

    def note(self, join_key: NDArray[np.uint64], ns: NDArray[np.int64]) -> None:
        """Note what server halves lost. What finds no client half is forgotten when newer notes need the room."""
        for key, lost in zip(join_key.tolist(), ns.tolist(), strict=True):
            self._lost_ns[key] = self._lost_ns.get(key, 0) + lost
        for key in list(self._lost_ns)[: -self._limit]:
            del self._lost_ns[key]
        self._noted |= len(ns) > 0

    def take(self) -> Shared | None:
        """Return the recent client halves for which something was noted, once each."""
        news, self._kept = self._recent.kept > self._kept, self._recent.kept
        if not self._lost_ns or not (news or self._noted):
            return None
        self._noted = False
        rows, keys = self._recent.rows, np.fromiter(self._lost_ns, np.uint64, len(self._lost_ns))
        of_clients = (rows["role"] == Role.CLIENT) & (rows["at"] > 0)
        at = np.flatnonzero(of_clients & np.isin(rows["join_key"], keys))
        if not len(at):
            return None
        half = rows.take(at)
        ns = [self._lost_ns.pop(key) for key in half["join_key"].tolist()]
        return Shared(half, np.array(ns, np.int64), self._hits.mark(at))
