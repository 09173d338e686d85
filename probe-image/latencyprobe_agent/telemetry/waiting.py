"""Where chosen halves wait until they can become spans: for their other half, and for the peer's identity.

The loop admits what `measure/sampling.py` chose, notes pairs, and takes what is ready once per drain; `spans.py`
encodes it. A half waits for its other half as long as both could still be under way (one or two drains) or the remote
join may bring it (`config.remote_join_wait_s`), for an identity at most 2 s, then it goes out as a root that says so.
Bounded; what does not fit is counted.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import numpy as np

from latencyprobe.plan import Identity, Target
from latencyprobe_agent.directory.peers import Peers, address
from latencyprobe_agent.measure.evidence import HOLD_NS, Joined
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.sampling import Reason, Selected
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Role


@dataclass(frozen=True, slots=True)
class Join:
    """What only a pair knows. `stages_ns`: PAIR_STAGES; `excess_ns` is NaN without a round trip sample.

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
class Chosen:
    """Row `row` of `halves`, chosen to become a span. `identity` None: nobody could say who `peer` is.

    `held_s`: until when evidence may still come. `evidence`: signal, record and its wait in ns.
    """

    halves: Halves
    row: int
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
    """`left_out`: chosen halves that became no span: over the budget, the room was full, or their target had gone."""

    def __init__(self, *, identity_wait_s: float, join_wait_s: float, capacity: int) -> None:
        self.left_out = 0
        self.unresolved = 0
        self._identity_wait_s = identity_wait_s
        self._join_wait_s = join_wait_s
        self._capacity = capacity
        self._chosen: list[Chosen] = []

    def __len__(self) -> int:
        return len(self._chosen)

    def admit(self, halves: Halves, selected: Selected, targets: Mapping[int, Target], now_s: float) -> None:
        """Let the selected rows in. `targets`: the target that names the span, by target set."""
        self.left_out += selected.left_out
        rows = halves.take(selected.index)
        sets = rows.rec["target_set"].tolist()
        peers = [address(bytes(packed)) for packed in rows.rec["peer_addr"]]
        chosen = zip(sets, selected.reason.tolist(), selected.ratio.tolist(), peers, strict=True)
        for row, (index, reason, ratio, peer) in enumerate(chosen):
            target = targets.get(index)
            if target is None or len(self._chosen) >= self._capacity:
                self.left_out += 1
            else:
                held_s = now_s + HOLD_NS / 1e9 if _may_be_resent(rows.rec[row], target) else 0.0
                self._chosen.append(Chosen(rows, row, target, Reason(reason), ratio, peer, now_s, held_s=held_s))

    def note_pairs(
        self, pairs: Pairs, *, by_process: bool, recalled: Mapping[int, tuple[str, str]] | None = None
    ) -> None:
        """Tell the waiting halves that are part of a pair what the pair knows.

        `recalled`: of pairs whose server halves are from other nodes, `Join.server` by the low half of the trace id.
        """
        if not self._chosen or not len(pairs):
            return
        waiting: dict[int, list[Chosen]] = {}
        for chosen in self._chosen:
            waiting.setdefault(int(chosen.halves.trace_id[chosen.row, 1]), []).append(chosen)
        low = pairs.client.trace_id[:, 1]
        hits = np.flatnonzero(np.isin(low, np.fromiter(waiting, np.uint64, len(waiting))))
        for hit in hits.tolist():
            join = Join(
                stages_ns=tuple(pairs.stages[hit].tolist()),
                dominant=int(pairs.dominant[hit]),
                excess_ns=float(pairs.network_excess[hit]),
                client_owner=owner(pairs.client.rec[hit], by_process=by_process),
                server_owner=owner(pairs.server.rec[hit], by_process=by_process),
                server=recalled.get(int(low[hit]), ("", "")) if recalled is not None else None,
            )
            for chosen in waiting[int(low[hit])]:
                chosen.join = join

    def note_evidence(self, explains: Explains, joined: Joined) -> None:
        """Give the waiting halves what explains them."""
        if not self._chosen:
            return
        waiting: dict[tuple[int, int], Chosen] = {}
        for chosen in self._chosen:
            low = int(chosen.halves.trace_id[chosen.row, 1])
            waiting[low, int(chosen.halves.rec["role"][chosen.row])] = chosen
        keys = zip(joined.half["trace_id"][:, 1].tolist(), joined.half["role"].tolist(), strict=True)
        for row, key in enumerate(keys):
            if key in waiting:
                waiting[key].evidence.append((explains, joined.evidence.rec[row], int(joined.wait_ns[row])))

    def take_ready(
        self, peers: Peers, now_s: float, asking: Container[int] = (), *, all_of_them: bool = False
    ) -> list[Chosen]:
        """Return the halves that need not wait any longer; `all_of_them` at the end of the run.

        `asking`: low halves of the trace ids whose server half may still come from another node.
        """
        if not self._chosen:
            return []
        known = peers.resolve({chosen.peer for chosen in self._chosen})
        ready, waiting = [], []
        for chosen in self._chosen:
            chosen.identity = known.get(chosen.peer)
            waited_s = now_s - chosen.since_s
            named = chosen.identity is not None or chosen.join is not None or waited_s >= self._identity_wait_s
            joined = chosen.join is not None or (
                waited_s >= self._join_wait_s and int(chosen.halves.trace_id[chosen.row, 1]) not in asking
            )
            if all_of_them or (named and joined and now_s >= chosen.held_s):
                ready.append(chosen)
                self.unresolved += chosen.identity is None and chosen.join is None
            else:
                waiting.append(chosen)
        self._chosen = waiting
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


def is_server(chosen: Chosen) -> bool:
    """Return whether this half was seen at the server."""
    return bool(chosen.halves.rec["role"][chosen.row] == Role.SERVER)
