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
        self._lost: dict[int, tuple[int, int]] = {}  # ns, and the adjusted count of the server's half
        self._noted = False  # since the recent halves were last looked at
        self._kept = 0  # how many there had been by then

    def note(self, join_key: NDArray[np.uint64], ns: NDArray[np.int64], adjusted_count: NDArray[np.integer]) -> None:
        """Note what server halves lost. What finds no client half is forgotten when newer notes need the room."""
        for key, lost_ns, count in zip(join_key.tolist(), ns.tolist(), adjusted_count.tolist(), strict=True):
            before_ns, _ = self._lost.get(key, (0, 0))
            self._lost[key] = before_ns + lost_ns, count
        for key in list(self._lost)[: -self._limit]:
            del self._lost[key]
        self._noted |= len(ns) > 0

    def take(self) -> Shared | None:
        """Return the recent client halves for which something was noted, once each. A key that two of them have is
        ambiguous: neither is returned."""
        news, self._kept = self._recent.kept > self._kept, self._recent.kept
        if not self._lost or not (news or self._noted):
            return None
        self._noted = False
        rows, keys = self._recent.rows, np.fromiter(self._lost, np.uint64, len(self._lost))
        of_clients = (rows["role"] == Role.CLIENT) & (rows["at"] > 0)
        at = np.flatnonzero(of_clients & np.isin(rows["join_key"], keys))
        found, first, times = np.unique(rows["join_key"][at], return_index=True, return_counts=True)
        lost = np.array([self._lost.pop(key) for key in found.tolist()], np.int64)
        alone = times == 1
        if not alone.any():
            return None
        at = at[first[alone]]
        half, (ns, counts) = rows.take(at), lost[alone].T
        half["adjusted_count"] = np.maximum(half["adjusted_count"], counts)
        return Shared(half, ns, self._hits.mark(at))
