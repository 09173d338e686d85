"""Where sampled halves wait until they can become spans: for their other half, and for the peer's identity.

A half waits for its other half as long as both could still be under way (one or two turns) or the remote join may bring
it (`config.remote_join_wait_s`), and for an identity at most 4 s, after which it goes out as a root without one. An
address that nobody has is waited for as well: that of a new pod reaches the API server a second or two after its first
request. One row each, no object; bounded, and what does not fit is counted. Rules: docs/design/telemetry.md, "Waiting
spans".
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import Target
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.evidence import HOLD_NS, Joined
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.sampling import Sampled
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.telemetry.codes import Codes
from latencyprobe_agent.telemetry.matching import find
from latencyprobe_agent.telemetry.peer_names import NOBODY, PeerNames
from latencyprobe_agent.telemetry.span_rows import (
    JOINED_HERE,
    JOINED_REMOTELY,
    NOT_JOINED,
    OF_RECORD,
    ROW,
    Ready,
    SpanTarget,
    concatenated,
)
from latencyprobe_agent.telemetry.stage_spans import shown_as
from latencyprobe_agent.telemetry.waiting_calls import WaitingCalls
from latencyprobe_agent.telemetry.waiting_evidence import WaitingEvidence
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Role

_CODES = 1024  # targets, and servers on other nodes, that are kept before it is looked which are still needed
_NAME_EVERY_S = 0.25
_NONE = np.zeros(0, np.uint64)
_WHOLE = f"V{ROW.itemsize}"  # so that rows are copied whole, not field by field


class _Limits(NamedTuple):
    identity_wait_s: float
    join_wait_s: float
    capacity: int


class _Codes(NamedTuple):
    targets: Codes[SpanTarget]
    servers: Codes[tuple[str, str]]
    peers: PeerNames


class WaitingRoom:
    """`capacity`: rows of 272 bytes, and as many records of evidence and calls.

    `left_out`: sampled halves that became no span: over the budget, the room was full, or their target had gone.
    `unresolved`: spans whose peer nobody could name in time; `unnamed`: whose stacks. `evidence`: what explains those
    that wait; `calls`: whom they called.
    """

    def __init__(self, *, identity_wait_s: float, join_wait_s: float, capacity: int) -> None:
        self.left_out = 0
        self.unresolved = 0
        self.unnamed = 0
        self.evidence = WaitingEvidence(capacity)
        self.calls = WaitingCalls(capacity)
        self._limits = _Limits(identity_wait_s, join_wait_s, capacity)
        self._rows = np.empty(0, ROW)
        self._admitted = 0
        self._named_s = -_NAME_EVERY_S
        self._codes = _Codes(Codes(), Codes(), PeerNames())

    def __len__(self) -> int:
        return len(self._rows)

    def admit(
        self, sampled: Sampled, targets: Mapping[int, Target], now_s: float, *, by_process: bool
    ) -> NDArray[np.void]:
        """Let sampled halves in, as ROW[n], and return those. `targets`: the target that names the span, by target
        set."""
        known = np.isin(sampled.halves.rec["target_set"], list(targets))
        at = np.flatnonzero(known)[: self._limits.capacity - len(self._rows)]
        self.left_out += sampled.over_budget + len(sampled) - len(at)
        if not len(at):
            return np.empty(0, ROW)
        rows = _rows(sampled, at)
        sets, of_row = np.unique(sampled.halves.rec["target_set"][at], return_inverse=True)
        named = [targets[number] for number in sets.tolist()]
        closed = (rows["role"] == Role.SERVER) & (rows["flags"] & ExchangeFlags.CLOSED != 0)
        resent = np.array(["retransmits" in target.evidence for target in named])[of_row]
        rows["number"] = self._admitted + np.arange(len(at))
        rows["owner"] = owners(sampled.halves.rec, by_process=by_process)[at]
        rows["target"] = np.array([self._codes.targets.of(SpanTarget.of(target)) for target in named])[of_row]
        rows["stages_as"] = shown_as([target.spans.stages for target in named], of_row, rows["reason"])
        rows["since_s"] = now_s
        rows["held_s"][closed & resent] = now_s + HOLD_NS / 1e9  # see `_rows`
        self._admitted += len(at)
        self._rows = concatenated([self._rows, rows])
        self._forget()
        return rows

    def name(self, peers: Peers, now_s: float) -> None:
        """Name the peers of halves that have no name yet, four times a second at most: who has gone may have none."""
        new = np.flatnonzero(self._rows["peer"] == NOBODY)
        if len(new) and now_s - self._named_s >= _NAME_EVERY_S:
            self._named_s = now_s
            rows = self._rows.view(_WHOLE)[new].view(ROW)
            self._codes.peers.name(rows, peers)
            self._rows["peer"][new] = rows["peer"]

    def note_pairs(
        self, pairs: Pairs, *, by_process: bool, servers: Mapping[int, tuple[str, str]] | None = None
    ) -> None:
        """Give the waiting halves that are part of a pair what the pair knows.

        `servers`: of pairs whose server halves are from other nodes, service name and namespace by join key.
        """
        alone = np.flatnonzero(self._rows["joined"] == NOT_JOINED)
        if not len(pairs) or not len(alone):
            return
        rows = self._rows
        found = find(rows["join_key"][alone], pairs.of_clients(lambda halves: halves.join_key))
        at, pair = alone[found >= 0], found[found >= 0]
        if not len(pair):
            return

        def owner(halves: Halves) -> NDArray[np.uint64]:
            return owners(halves.rec, by_process=by_process)

        rows["pair_stages"][at] = pairs.stages[pair]
        rows["pair_dominant"][at] = pairs.dominant[pair]
        rows["excess_ns"][at] = pairs.network_excess[pair]
        is_server = rows["role"][at] == Role.SERVER
        rows["other_owner"][at] = np.where(is_server, pairs.of_clients(owner)[pair], pairs.of_servers(owner)[pair])
        rows["joined"][at] = JOINED_HERE if servers is None else JOINED_REMOTELY
        if servers is not None:
            rows["server"][at] = [
                self._codes.servers.of(servers.get(key, ("", ""))) for key in rows["join_key"][at].tolist()
            ]

    def note_evidence(self, explains: Explains, joined: Joined) -> None:
        """Give the waiting halves what explains them."""
        number = np.full(len(joined.half), -1, np.int64)
        for role in Role:  # both halves of an exchange have one key
            rows, records = (np.flatnonzero(of["role"] == role) for of in (self._rows, joined.half))
            found = find(joined.half["join_key"][records], self._rows["join_key"][rows])
            hit = found >= 0
            number[records[hit]] = self._rows["number"][rows[found[hit]]]
        self.evidence.note(explains, joined, number)

    def note_calls(self, links: NDArray[np.void]) -> None:
        """Give the waiting halves whom they called, and who called."""
        if len(links):
            self.calls.note(links, self._rows)

    def take_ready(
        self,
        peers: Peers,
        now_s: float,
        asking: Collection[int] = (),
        open_calls: NDArray[np.uint64] = _NONE,
        *,
        all_of_them: bool = False,
    ) -> Ready:
        """Return the halves that need not wait any longer; `all_of_them` at the end of the run.

        `asking`: join keys of those whose server half may still come from another node; `open_calls`: of those of which
        it may still come out whom they called, or who called.
        """
        rows = self._rows
        if not len(rows):
            return Ready(rows, (), (), ())
        nameless = self._codes.peers.name(rows, peers)
        joined, waited_s = rows["joined"] != NOT_JOINED, now_s - rows["since_s"]
        anonymous = waited_s >= self._limits.identity_wait_s
        hopeless = waited_s >= self._limits.join_wait_s
        if asking:
            hopeless &= ~np.isin(rows["join_key"], np.fromiter(asking, np.uint64, len(asking)))
        go = (joined | hopeless) & (joined | ~nameless | anonymous) & (now_s >= rows["held_s"])
        if len(open_calls):
            go &= ~np.isin(rows["join_key"], open_calls)
        if all_of_them:
            go[:] = True
        ready = rows.view(_WHOLE)[go].view(ROW)
        self.unresolved += self._codes.peers.give_up(ready, peers)
        self._rows = rows.view(_WHOLE)[~go].view(ROW)
        evidence, calls = self.evidence.take(ready["number"]), self.calls.take(ready["number"])
        codes = self._codes
        return Ready(ready, codes.targets.values, codes.peers.peers, codes.servers.values, evidence, calls)

    def _forget(self) -> None:
        for name, codes in (("target", self._codes.targets), ("server", self._codes.servers)):
            if len(codes.values) > _CODES:
                self._rows[name] = codes.keep(self._rows[name])
        self._codes.peers.keep(self._rows)


def owners(record: NDArray[np.void], *, by_process: bool) -> NDArray[np.uint64]:
    """Return the owner of each record as the kernel counts it: the process that wrote first, or the cgroup."""
    if not by_process:
        return record["cgroup_id"].astype(np.uint64)
    return np.where(record["writer_tgid"], record["writer_tgid"], record["reader_tgid"]).astype(np.uint64)


def _rows(sampled: Sampled, at: NDArray[np.intp]) -> NDArray[np.void]:
    """Return the rows `at` as ROW, with what is known of a half alone.

    None is held: a half may have ended before its message was acknowledged only if it is a server's that closed after
    answering. Any other was acknowledged by what ended it: the next request, the response, or the flush.
    """
    halves: Halves = sampled.halves
    rows = np.zeros(len(at), ROW)
    some = slice(None) if len(at) == len(halves) else at  # of all of them nothing is copied in between
    for name in OF_RECORD:
        rows[name] = halves.rec[name][some]
    for name in ("start_ns", "stages", "dominant", "join_key", "first_answer_ns"):
        rows[name] = getattr(halves, name)[some]
    for name in ("trace_id", "reason", "ratio"):
        rows[name] = getattr(sampled, name)[some]
    return rows
