"""Where sampled halves wait until they can become spans: for their other half, and for the peer's identity.

A half waits for its other half as long as both could still be under way (one or two turns) or the remote join may bring
it (`config.remote_join_wait_s`), and for an identity at most 2 s, after which it goes out as a root without one.
Bounded; what does not fit is counted. Rules: docs/design/telemetry.md, "Waiting spans".
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import numpy as np

from latencyprobe.plan import Identity, Target
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure import keys
from latencyprobe_agent.measure.evidence import HOLD_NS, Joined
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Role


@dataclass(frozen=True, slots=True)
class Join:
    """What only a pair knows. `stages_ns`: as `stages.PAIR`; `excess_ns` is NaN without a round trip sample.

    Owners are as in `struct counts_key`. `server`: service name and namespace of a server on another node, whose half
    was joined remotely; None where both halves were joined here.
    """

    stages_ns: tuple[int, ...]
    dominant: int
    excess_ns: float
    client_owner: int
    server_owner: int
    server: tuple[str, str] | None = None


@dataclass(slots=True)
class PendingSpan:
    """Row `row` of `halves`, on its way to become a span. `identity` None: nobody has named `peer` so far.

    `trace_id`: high and low half; `span_ids`: of the client's span and the server's.
    `held_s`: until when evidence may still come. `evidence`: signal, record and its wait in ns.
    """

    halves: Halves
    row: int
    trace_id: tuple[int, int]
    span_ids: tuple[int, int]
    target: Target
    reason: Reason
    ratio: float
    peer: str
    since_s: float
    identity: Identity | None = None
    join: Join | None = None
    held_s: float = 0.0
    evidence: list[tuple[Explains, np.void, int]] = field(default_factory=list)


class WaitingRoom:
    """`left_out`: sampled halves that became no span: over the budget, the room was full, or their target had
    gone. `unresolved`: spans whose peer nobody could name in time."""

    def __init__(self, *, identity_wait_s: float, join_wait_s: float, capacity: int) -> None:
        self.left_out = 0
        self.unresolved = 0
        self._identity_wait_s = identity_wait_s
        self._join_wait_s = join_wait_s
        self._capacity = capacity
        self._pending: list[PendingSpan] = []

    def __len__(self) -> int:
        return len(self._pending)

    def admit(self, sampled: Sampled, targets: Mapping[int, Target], now_s: float) -> None:
        """Let sampled halves in. `targets`: the target that names the span, by target set."""
        self.left_out += sampled.over_budget
        halves = sampled.halves
        sets = halves.rec["target_set"].tolist()
        peers = [address(bytes(packed)) for packed in halves.rec["peer_addr"]]
        trace_ids = [(high, low) for high, low in sampled.trace_id.tolist()]
        span_ids = zip(*(keys.span_ids(half).tolist() for half in sampled.trace_id.T), strict=True)
        columns = zip(sets, trace_ids, span_ids, sampled.reason.tolist(), sampled.ratio.tolist(), peers, strict=True)
        for row, (index, trace_id, of_spans, reason, ratio, peer) in enumerate(columns):
            target = targets.get(index)
            if target is None or len(self._pending) >= self._capacity:
                self.left_out += 1
            else:
                held_s = now_s + HOLD_NS / 1e9 if _may_be_resent(halves.rec[row], target) else 0.0
                self._pending.append(
                    PendingSpan(
                        halves, row, trace_id, of_spans, target, Reason(reason), ratio, peer, now_s, held_s=held_s
                    )
                )

    def note_pairs(
        self, pairs: Pairs, *, by_process: bool, servers: Mapping[int, tuple[str, str]] | None = None
    ) -> None:
        """Give the waiting halves that are part of a pair what the pair knows.

        `servers`: of pairs whose server halves are from other nodes, `Join.server` by join key.
        """
        if not self._pending or not len(pairs):
            return
        waiting: dict[int, list[PendingSpan]] = {}
        for one in self._pending:
            waiting.setdefault(int(one.halves.join_key[one.row]), []).append(one)
        join_keys = pairs.client.join_key
        hits = np.flatnonzero(np.isin(join_keys, np.fromiter(waiting, np.uint64, len(waiting))))
        for hit in hits.tolist():
            join = Join(
                stages_ns=tuple(pairs.stages[hit].tolist()),
                dominant=int(pairs.dominant[hit]),
                excess_ns=float(pairs.network_excess[hit]),
                client_owner=owner(pairs.client.rec[hit], by_process=by_process),
                server_owner=owner(pairs.server.rec[hit], by_process=by_process),
                server=servers.get(int(join_keys[hit]), ("", "")) if servers is not None else None,
            )
            for one in waiting[int(join_keys[hit])]:
                one.join = join

    def note_evidence(self, explains: Explains, joined: Joined) -> None:
        """Give the waiting halves what explains them."""
        if not self._pending:
            return
        waiting: dict[tuple[int, int], PendingSpan] = {}
        for one in self._pending:
            waiting[int(one.halves.join_key[one.row]), int(one.halves.rec["role"][one.row])] = one
        halves = zip(joined.half["join_key"].tolist(), joined.half["role"].tolist(), strict=True)
        for row, half in enumerate(halves):
            if half in waiting:
                waiting[half].evidence.append((explains, joined.evidence.rec[row], int(joined.wait_ns[row])))

    def take_ready(
        self, peers: Peers, now_s: float, asking: Container[int] = (), *, all_of_them: bool = False
    ) -> list[PendingSpan]:
        """Return the halves that need not wait any longer; `all_of_them` at the end of the run.

        `asking`: join keys of those whose server half may still come from another node.
        """
        if not self._pending:
            return []
        known = peers.resolve({one.peer for one in self._pending})
        ready, waiting = [], []
        for one in self._pending:
            one.identity = known.get(one.peer)
            waited_s = now_s - one.since_s
            named = one.identity is not None or one.join is not None or waited_s >= self._identity_wait_s
            joined = one.join is not None or (
                waited_s >= self._join_wait_s and int(one.halves.join_key[one.row]) not in asking
            )
            if all_of_them or (named and joined and now_s >= one.held_s):
                ready.append(one)
                self.unresolved += one.identity is None and one.join is None
            else:
                waiting.append(one)
        self._pending = waiting
        return ready


def _may_be_resent(record: np.void, target: Target) -> bool:
    """Return whether a half may have ended before its message was acknowledged: a server that closes after answering.

    The message of any other half was acknowledged by what ended it: the next request, the response, or the flush.
    """
    closed = bool(record["flags"] & ExchangeFlags.CLOSED) and record["role"] == Role.SERVER
    return closed and "retransmits" in target.evidence


def owner(record: np.void, *, by_process: bool) -> int:
    """Return the owner of a record as the kernel counts it: the process that wrote first, or the cgroup."""
    return int((record["writer_tgid"] or record["reader_tgid"]) if by_process else record["cgroup_id"])


def is_server(one: PendingSpan) -> bool:
    """Return whether this half was seen at the server."""
    return bool(one.halves.rec["role"][one.row] == Role.SERVER)
