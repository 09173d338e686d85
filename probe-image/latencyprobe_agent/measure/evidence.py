"""Join evidence to the exchanges that it explains: by connection and sent bytes, oldest first, each record once.

`explaining.py` feeds every batch of halves and then the evidence that was in the rings by then. Rules: tcp-evidence.md
section 0. Bounded: the latest halves, and the latest records that wait for an exchange which has not ended yet.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.signals.evidence import Evidence
from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded, Role

HOLD_NS = 1_000_000_000  # a response that was not acknowledged when its half ended may be sent again this much later
_WAIT_NS = 60_000_000_000  # for an exchange that is still open
_AMBIGUOUS = [Excluded.PIPELINED, Excluded.MULTIPLEXED, Excluded.OVERLAP]

# What the join needs of a half. `seq`..`end_seq`: the message that this side sent; `at`: order of arrival, from 1.
ENDED = np.dtype(
    [
        *(("at", "u8"), ("sock_cookie", "u8"), ("trace_id", "2u8"), ("start_ns", "i8"), ("end_ns", "i8")),
        *(("send_start_ns", "i8"), ("send_end_ns", "i8"), ("duration_ns", "i8"), ("seq", "u4"), ("end_seq", "u4")),
        *(("target_set", "u4"), ("local_port", "u2"), ("peer_port", "u2"), ("role", "u1"), ("excluded", "u1")),
        *(("outcome", "u1"), ("fresh", "?")),
    ]
)


@dataclass(frozen=True)
class Joined:
    """Evidence of one signal and the half that each record explains: ENDED[n].

    `wait_ns`: i64[n], since the bytes had last been sent, an upper bound of what the record cost; `new_ns`: i64[n], the
    part of it that no earlier record of that exchange had covered. `first`: bool[n], no record of this signal was
    joined to that exchange before.
    """

    evidence: Evidence
    half: NDArray[np.void]
    wait_ns: NDArray[np.int64]
    new_ns: NDArray[np.int64]
    first: NDArray[np.bool_]


@dataclass(frozen=True)
class Shared:
    """Client halves, ENDED[n], whose server half lost `new_ns` (i64[n]); `first` as in `Joined`."""

    half: NDArray[np.void]
    new_ns: NDArray[np.int64]
    first: NDArray[np.bool_]


class EvidenceBatch(NamedTuple):
    """What one drain of one signal brought: all that was recorded, what explains an exchange, and the exchanges of
    callers that waited for what their server half lost."""

    signal: Signal
    records: Evidence | None
    joined: Joined | None
    shared: Shared | None = None


class RecentHalves:
    """The latest halves, which all signals look at: `rows`, ENDED[limit]; `kept`: how many there have been."""

    def __init__(self, limit: int = 16_384) -> None:
        self.rows = np.zeros(limit, ENDED)
        self.kept = 0

    def keep(self, halves: Halves) -> None:
        """Take in halves that have ended, in the place of the oldest ones."""
        limit = len(self.rows)
        newest = halves if len(halves) <= limit else halves.take(np.arange(len(halves) - limit, len(halves)))
        slots = (self.kept + np.arange(len(newest))) % limit
        self.rows[slots] = _ended(newest, self.kept + 1)
        self.kept += len(newest)


class EvidenceJoin:
    """The join of one signal. `outcomes`: records by what became of them, `joined`, `late`, `no_exchange`, `ambiguous`;
    those that still wait for their exchange are in none of them. `waits`: as in `Explains`."""

    def __init__(
        self, recent: RecentHalves, *, waits: bool, waiting: int = 4_096, outcomes: Counter[str] | None = None
    ) -> None:
        self.outcomes = Counter() if outcomes is None else outcomes
        self.recent = recent
        self._ended = recent.rows
        self._joined_at = self._shared_at = 0  # `recent.kept` when it was last looked at
        self._waits = waits
        self._limit = waiting
        self._waiting: Evidence | None = None
        self._sent: dict[tuple[int, int], int] = {}  # (cookie, seq) → when last sent again
        self._to_share: dict[int, int] = {}  # low half of the trace id → ns that its server half lost
        self._noted = False
        self._hit = np.zeros(len(recent.rows), np.uint64)  # by slot: the half (its `at`) that was hit last
        self._covered_ns = np.zeros(len(recent.rows), np.int64)  # by slot, of that half: until when waits are counted

    def join(self, evidence: Evidence | None, now_ns: int) -> Joined | None:
        """Join what waits and what was recorded since, before `now_ns`, to the halves so far."""
        if evidence is not None and not evidence.joins.all():
            evidence = evidence.take(evidence.joins)
        news, self._joined_at = self.recent.kept > self._joined_at, self.recent.kept
        parts = [part for part in (self._waiting if news or evidence else None, evidence) if part]
        return self._join(Evidence.concatenate(parts), now_ns) if parts else None

    def share(self, trace_low: NDArray[np.uint64], ns: NDArray[np.int64]) -> None:
        """Note what server halves (by the low half of their trace ids) lost: their clients waited for it too.

        What finds no client half is forgotten when newer notes need the room.
        """
        for low, lost in zip(trace_low.tolist(), ns.tolist(), strict=True):
            self._to_share[low] = self._to_share.get(low, 0) + lost
        for low in list(self._to_share)[: -self._limit]:
            del self._to_share[low]
        self._noted |= len(ns) > 0

    def shared(self) -> Shared | None:
        """Return the client halves so far for which something was noted, once each."""
        news, self._shared_at = self.recent.kept > self._shared_at, self.recent.kept
        if not self._to_share or not (news or self._noted):
            return None
        self._noted = False
        lows = np.fromiter(self._to_share, np.uint64, len(self._to_share))
        of_clients = (self._ended["role"] == Role.CLIENT) & (self._ended["at"] > 0)
        at = np.flatnonzero(of_clients & np.isin(self._ended["trace_id"][:, 1], lows))
        if not len(at):
            return None
        ns = [self._to_share.pop(low) for low in self._ended["trace_id"][at, 1].tolist()]
        return Shared(self._ended[at], np.array(ns, np.int64), self._mark(at))

    def waiting(self) -> int:
        """Return how many records wait for their exchange to end."""
        return 0 if self._waiting is None else len(self._waiting)

    def give_up(self) -> None:
        """Count what still waits as without an exchange: nothing ends any more."""
        self.outcomes["no_exchange"] += self.waiting()
        self._waiting = None

    def _join(self, evidence: Evidence, now_ns: int) -> Joined | None:
        flow = evidence.rec["flow"]
        slot = _find(self._ended, evidence)
        found = slot >= 0
        half = self._ended[np.maximum(slot, 0)]
        age_ns = now_ns - flow["boot_ns"].astype(np.int64)
        late = found & (flow["boot_ns"].astype(np.int64) - half["end_ns"] > HOLD_NS)
        ambiguous = found & ~late & np.isin(half["excluded"], _AMBIGUOUS)
        no_exchange = (found & ~late & ~ambiguous & (half["excluded"] != Excluded.NONE)) | (
            ~found & (age_ns > _WAIT_NS)
        )
        wait = np.flatnonzero(~found & ~no_exchange)
        over, wait = wait[: -self._limit], wait[-self._limit :]  # the newest stay
        self._waiting = evidence.take(wait)
        good = np.flatnonzero(found & ~late & ~ambiguous & ~no_exchange)
        gone = int(no_exchange.sum()) + len(over)
        for outcome, count in (
            *(("joined", len(good)), ("late", int(late.sum())), ("ambiguous", int(ambiguous.sum()))),
            ("no_exchange", gone),
        ):
            self.outcomes[outcome] += count
        if not len(good):
            return None
        good = good[np.argsort(flow["boot_ns"][good], kind="stable")]
        joined, slot = evidence.take(good), slot[good]
        first, half = self._mark(slot), self._ended[slot]
        wait_ns = self._since_sent(joined, half)
        new_ns = self._newly_covered(joined, slot, wait_ns)
        if self._waits:
            servers = half["role"] == Role.SERVER
            self.share(half["trace_id"][servers, 1], new_ns[servers])
        return Joined(joined, half, wait_ns, new_ns, first)

    def _mark(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Note that the halves in these slots are hit, and tell where for the first time."""
        first = np.zeros(len(slots), np.bool_)
        first[np.unique(slots, return_index=True)[1]] = True
        first &= self._hit[slots] != self._ended["at"][slots]
        self._covered_ns[slots[first]] = 0
        self._hit[slots] = self._ended["at"][slots]
        return first

    def _since_sent(self, evidence: Evidence, half: NDArray[np.void]) -> NDArray[np.int64]:
        """Time since the last earlier transmission of each record's bytes that is known."""
        at_ns = evidence.rec["flow"]["boot_ns"].astype(np.int64)
        if not self._waits:
            return np.zeros(len(evidence), np.int64)
        sent_ns = np.where(
            (half["send_end_ns"] > 0) & (half["send_end_ns"] < at_ns), half["send_end_ns"], half["send_start_ns"]
        )
        if len(self._sent) > self._limit:
            self._sent.clear()
        for i, key in enumerate(zip(evidence.rec["flow"]["sock_cookie"].tolist(), evidence.seq.tolist(), strict=True)):
            sent_ns[i] = max(int(sent_ns[i]), self._sent.get(key, 0))
            self._sent[key] = int(at_ns[i])
        wait_ns: NDArray[np.int64] = np.where(sent_ns > 0, np.maximum(at_ns - sent_ns, 0), 0)
        return wait_ns

    def _newly_covered(
        self, evidence: Evidence, slots: NDArray[np.intp], wait_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Length that each wait adds to the union of those of its exchange. Records are in order of time."""
        new_ns = np.zeros(len(evidence), np.int64)
        for i in np.flatnonzero(wait_ns).tolist():
            at_ns, covered_ns = int(evidence.rec["flow"]["boot_ns"][i]), int(self._covered_ns[slots[i]])
            new_ns[i] = max(0, at_ns - max(at_ns - int(wait_ns[i]), covered_ns))
            self._covered_ns[slots[i]] = max(at_ns, covered_ns)
        return new_ns


def _ended(halves: Halves, at: int) -> NDArray[np.void]:
    """Return ENDED rows, numbered from `at`."""
    record, client = halves.rec, halves.rec["role"] == Role.CLIENT
    rows = np.zeros(len(halves), ENDED)
    rows["at"] = at + np.arange(len(halves))
    rows["seq"] = np.where(client, record["request_seq"], record["response_seq"])
    rows["end_seq"] = rows["seq"] + np.where(client, record["request_bytes"], record["response_bytes"]).astype("u4")
    rows["fresh"] = record["flags"] & ExchangeFlags.FRESH != 0
    for name in ("sock_cookie", "send_start_ns", "send_end_ns", "target_set", "local_port", "peer_port"):
        rows[name] = record[name]
    for name in ("role", "excluded", "outcome"):
        rows[name] = record[name]
    for name in ("trace_id", "start_ns", "end_ns", "duration_ns"):
        rows[name] = getattr(halves, name)
    return rows


def _find(ended: NDArray[np.void], evidence: Evidence) -> NDArray[np.intp]:
    """Return the slot in `ended` of the half that each record explains, -1 for none."""
    flow = evidence.rec["flow"]
    candidates = np.flatnonzero(np.isin(ended["sock_cookie"], flow["sock_cookie"]) & (ended["at"] > 0))
    order = candidates[np.lexsort((ended["at"][candidates], ended["sock_cookie"][candidates]))]
    half = ended[order]
    low = np.searchsorted(half["sock_cookie"], flow["sock_cookie"], side="left")
    high = np.searchsorted(half["sock_cookie"], flow["sock_cookie"], side="right")
    ranged = evidence.seq != evidence.end_seq

    def reached(at: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether a half is not before the one that is looked for; halves of a connection are in order."""
        by_bytes = (half["end_seq"][at] - evidence.seq).astype(np.int32) > 0
        return np.where(ranged, by_bytes, half["start_ns"][at] > flow["boot_ns"].astype(np.int64))

    found = _first(low, high, reached) if len(half) else high
    found = np.where(ranged, found, found - 1)  # without a range: the last one that had begun
    found = np.where(evidence.before_start, low, found)
    there = (found >= low) & (found < high)
    at = np.where(there, found, 0)
    if len(half):
        overlaps = (evidence.end_seq - half["seq"][at]).astype(np.int32) > 0
        there &= np.where(evidence.before_start, half["fresh"][at], ~ranged | overlaps)
    slots = np.full(len(evidence), -1)
    slots[there] = order[at[there]]
    for i in np.flatnonzero(flow["sock_cookie"] == 0).tolist():
        # a SYN-ACK is sent before its socket exists: the first response begins where its sequence ends
        ports = (ended["local_port"] == flow["local_port"][i]) & (ended["peer_port"] == flow["peer_port"][i])
        same = np.flatnonzero(ports & ended["fresh"] & (ended["seq"] == evidence.end_seq[i]) & (ended["at"] > 0))
        slots[i] = same[ended["at"][same].argmax()] if len(same) else -1
    return slots


def _first(
    low: NDArray[np.intp], high: NDArray[np.intp], reached: Callable[[NDArray[np.intp]], NDArray[np.bool_]]
) -> NDArray[np.intp]:
    """Binary search in each range [low, high): the first place that is `reached`, `high` if none is."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        yes = reached(np.where(open_, middle, 0))
        high = np.where(open_ & yes, middle, high)
        low = np.where(open_ & ~yes, middle + 1, low)
    return low
