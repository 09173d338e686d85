"""Join evidence to the exchanges that it explains, by the key of its signal: oldest first, each record once.

Halves come first, then the evidence that was in the rings by then. Bounded: the latest halves, and the latest records
that wait for an exchange which has not ended yet. Rules: docs/design/evidence.md, "The join".
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.client_shares import ClientShares
from latencyprobe_agent.measure.evidence import HOLD_NS, Joined, Shared
from latencyprobe_agent.measure.hits import Hits
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.measure.waits import Waits
from latencyprobe_agent.signals.evidence import Evidence, Lasted, Repeats
from latencyprobe_agent.signals.join_keys import JoinKey
from latencyprobe_agent.vocabulary.records import Excluded, Role
from latencyprobe_agent.vocabulary.values import AMBIGUOUS

_WAIT_NS = 60_000_000_000  # for an exchange that is still open
_OUTCOMES = ("joined", "late", "ambiguous", "no_exchange")


class EvidenceJoin:
    """The join of one signal. `outcomes`: records by what became of them, `joined`, `late`, `no_exchange`, `ambiguous`;
    those that still wait for their exchange are in none of them. `waits`, `lasted`: as in `Explains`."""

    def __init__(
        self,
        recent: RecentHalves,
        key: JoinKey,
        waits: Repeats | None = None,
        *,
        lasted: Callable[[NDArray[np.void], NDArray[np.void]], Lasted] | None = None,
        limit: int = 4_096,
        outcomes: Counter[str] | None = None,
    ) -> None:
        self.outcomes = Counter() if outcomes is None else outcomes
        self.recent = recent
        self._key = key
        self._kept = 0  # of `recent`, when the join last looked
        self._limit = limit
        self._waiting: Evidence | None = None
        self._hits = Hits(recent)
        self._waits = Waits(waits, limit) if waits else None
        self._lasted = lasted
        self._shares = ClientShares(recent, self._hits, limit)

    def join(self, evidence: Evidence, now_ns: int) -> Joined | None:
        """Join what waits and what was recorded since, before `now_ns`, to the halves so far."""
        if not evidence.joins.all():
            evidence = evidence.take(evidence.joins)
        news, self._kept = self.recent.kept > self._kept, self.recent.kept
        parts = [part for part in (self._waiting if news or evidence else None, evidence) if part]
        return self._join(Evidence.concatenate(parts), now_ns) if parts else None

    def share(self, join_key: NDArray[np.uint64], ns: NDArray[np.int64], adjusted_count: NDArray[np.integer]) -> None:
        """Note what server halves (by join key) lost: their clients waited for it too."""
        self._shares.note(join_key, ns, adjusted_count)

    def shared(self) -> Shared | None:
        """Return the client halves so far for which something was noted, once each."""
        return self._shares.take()

    def waiting(self) -> int:
        """Return how many records wait for their exchange to end."""
        return 0 if self._waiting is None else len(self._waiting)

    def give_up(self) -> None:
        """Count what still waits as without an exchange: nothing ends any more."""
        self.outcomes["no_exchange"] += self.waiting()
        self._waiting = None

    def _join(self, evidence: Evidence, now_ns: int) -> Joined | None:
        slot, at_ns = self._key.find(self.recent.rows, evidence.key), evidence.key["at_ns"]
        outcome = _outcomes(self.recent.rows.take(np.maximum(slot, 0)), slot >= 0, at_ns, now_ns)
        wait = np.flatnonzero(outcome == "")
        over, wait = wait[: -self._limit], wait[-self._limit :]  # the newest stay
        self._waiting = evidence.take(wait)
        for name in _OUTCOMES:
            self.outcomes[name] += int(np.count_nonzero(outcome == name))
        self.outcomes["no_exchange"] += len(over)
        good = np.flatnonzero(outcome == "joined")
        return self._joined(evidence, *self._and_others(evidence, good, slot[good])) if len(good) else None

    def _and_others(
        self, evidence: Evidence, good: NDArray[np.intp], slot: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the records `good` with the halves in these places, and with what else they explain, by time."""
        at, place = self._key.also(self.recent.rows, evidence.key.take(good), slot)
        half, record = self.recent.rows.take(place), good[at]
        at_ns = evidence.key["at_ns"]
        event = (half["excluded"] == Excluded.NONE) & (at_ns[record] - half["end_ns"] <= HOLD_NS)
        good, slot = np.append(good, record[event]), np.append(slot, place[event])
        order = np.argsort(at_ns[good], kind="stable")
        return good[order], slot[order]

    def _joined(self, evidence: Evidence, good: NDArray[np.intp], slot: NDArray[np.intp]) -> Joined:
        """Return the records `good`, which are in order of time, each with the half in its place `slot`."""
        joined = evidence.take(good)
        half, first = self.recent.rows.take(slot), self._hits.mark(slot)
        if self._lasted:
            until_ns, wait_ns, adds = self._lasted(half, joined.key)
            new_ns = self._hits.cover(slot, until_ns, np.where(adds, wait_ns, 0))
        elif self._waits:
            wait_ns = self._waits.since_last(half, joined.key)
            new_ns = self._hits.cover(slot, joined.key["at_ns"], wait_ns)
        else:
            nothing = np.zeros(len(good), np.int64)
            return Joined(joined, half, nothing, nothing, first)
        servers = half["role"] == Role.SERVER
        self.share(half["join_key"][servers], new_ns[servers], half["adjusted_count"][servers])
        return Joined(joined, half, wait_ns, new_ns, first)


def _outcomes(
    half: NDArray[np.void], found: NDArray[np.bool_], at_ns: NDArray[np.int64], now_ns: int
) -> NDArray[np.str_]:
    """Return what becomes of each record, empty as long as it waits. `half`: RECENT_HALF[n], where one was `found`."""
    first_that_holds = {
        "": ~found & (now_ns - at_ns <= _WAIT_NS),
        "no_exchange": ~found,
        "late": at_ns - half["end_ns"] > HOLD_NS,
        "ambiguous": np.isin(half["excluded"], AMBIGUOUS),
        "joined": half["excluded"] == Excluded.NONE,
    }
    return np.select(list(first_that_holds.values()), list(first_that_holds), "no_exchange")
