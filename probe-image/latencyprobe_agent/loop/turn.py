"""Makes turns: drains the rings, measures, joins and samples; what a turn holds is complete before it is handed on."""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe.sli import added
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.clock import Clock, Sleeps
from latencyprobe_agent.kernel.programs import IN_RING, Programs
from latencyprobe_agent.loop.canary import Canary
from latencyprobe_agent.loop.counting import Counting
from latencyprobe_agent.loop.evidence import EvidenceSignals
from latencyprobe_agent.loop.http2 import Http2
from latencyprobe_agent.loop.pressure import PressureReader
from latencyprobe_agent.loop.remote_join import RemoteJoiner
from latencyprobe_agent.measure import call_links, unsent
from latencyprobe_agent.measure.call_links import Calls
from latencyprobe_agent.measure.calls import CallJoin
from latencyprobe_agent.measure.counts import Snapshot
from latencyprobe_agent.measure.halves import flag_suspended, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.sampling import Reason, Sampled, Sampler, other_halves
from latencyprobe_agent.measure.turn import AgentStats, InForce, Turn, empty
from latencyprobe_agent.vocabulary.values import UNMEASURED

_BATCH = 4096  # records of a turn: 0.9 MiB, and about four times that while they are measured
# Halves that have not met their other half, also for other nodes to ask for: 242 bytes each, 4 MB. That is 30 s of
# 546 such halves a second; a caller asks about 1 s after its exchange, so 16,000 a second find theirs.
_WAITING = 16_384
_PAUSE_S = 100e-6
_LIMITED_NS = 60_000_000_000  # the status says for as long that the node had too few spans for somebody


@dataclass(frozen=True)
class Parts:
    """What a turn is made of. `sampler`, `joiner`: None where nobody makes spans, or there is no directory; `canary`:
    None outside a pod."""

    programs: Programs
    clock: Clock
    counting: Counting
    http2: Http2
    evidence: EvidenceSignals
    sampler: Sampler | None
    joiner: RemoteJoiner | None
    pressure: PressureReader
    canary: Canary | None = None


class Turns:
    """Makes one turn after the other. A part of it that fails is missing in that turn (`guard`)."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._parts = parts
        self._guard = guard
        self._sleeps = Sleeps()
        self._join = LocalJoin(_WAITING)
        self._calls = CallJoin()
        self._records = self._unmeasured = 0
        self._drained_s = time.monotonic()
        self._lag_s = 0.0

    def make(
        self, in_force: InForce, *, settle: bool = False, plan_age_s: float | None = None, last: bool = False
    ) -> tuple[Turn, bool]:
        """Return a turn of up to `_BATCH` records, and whether it is settled: that emptied the ring, or `settle`.

        Evidence and the remote join come in when the ring is empty, since what explains an exchange is recorded before
        it; with `settle` now, however full it is. `plan_age_s`: given once a second, a turn that is settled then has
        counts. `last`: nothing comes that could say more of what waits.
        """
        now_s = time.monotonic()
        self._lag_s, self._drained_s = max(self._lag_s, now_s - self._drained_s), now_s
        batch = self._parts.programs.drain(_BATCH)
        now, settled = self._parts.clock.now(), settle or len(batch) < _BATCH
        if self._parts.canary:
            batch = self._parts.canary.others(batch)
        turn = empty(now, in_force)
        if len(batch):
            measured = self._guard.run("measure", lambda: self._measured(turn, batch))
            self._records += len(batch)
            self._unmeasured += len(batch) if measured is None else 0
            turn = measured or turn
        self.give_way()
        if settled:
            turn = self._settled(turn)
        turn = self._guard.run("calls", lambda: self._with_calls(turn, settled=settled, last=last)) or turn
        if plan_age_s is not None and settled:
            self.give_way()
            turn = self._counted(turn, plan_age_s, last=last)
        return turn, settled

    def give_way(self) -> None:
        """Let whoever waits for this processor have it before the next part of a turn, unless the ring fills up: a turn
        takes some milliseconds, and the kernel may let who was woken wait for most of a slice (cost.md, C9)."""
        if self._parts.programs.waiting() * IN_RING <= self._parts.programs.ring_bytes // 2:
            time.sleep(_PAUSE_S)

    def discard(self) -> None:
        """Drop what is in the ring: no plan is in force."""
        while len(self._parts.programs.drain(_BATCH)) == _BATCH:
            pass

    def _measured(self, turn: Turn, batch: NDArray[np.void]) -> Turn:
        """Return the turn with a batch of EXCHANGE records: measured, sampled, joined."""
        parts, now, sets, pair_key = self._parts, turn.now, turn.in_force.rules.sets, turn.in_force.plan.pair_key
        batch["cgroup_id"] = turn.in_force.resources.whose(batch["cgroup_id"])
        some, sampled = halves(batch), turn.sampled
        self._sleeps.watch()  # after these have ended
        flag_suspended(some, self._sleeps.known)
        self.give_way()
        if parts.sampler:
            some, sampled = parts.sampler.decide(some, sets, pair_key, now.boot_ns)
        self.give_way()
        pairs = self._join.join(some)
        self.give_way()
        if parts.sampler and len(others := other_halves(pairs)):
            theirs = parts.sampler.decide_other_halves(others, sets, pair_key, now.boot_ns)
            sampled = Sampled.concatenate([sampled, theirs])
        self.give_way()
        parts.evidence.keep(some)
        if parts.joiner:
            parts.joiner.consider(some, pairs, turn.in_force, now.boot_ns)
        mine = unsent.of_halves(some, pairs)
        held = (*([mine] if mine else []), *unsent.of_pairs(pairs))
        return turn._replace(halves=some, pairs=pairs, sampled=sampled, evidence=held)

    def _settled(self, turn: Turn) -> Turn:
        """Return the turn with evidence, and with what other nodes have asked and answered."""
        parts, now = self._parts, turn.now
        resources = turn.in_force.resources
        evidence = parts.evidence.drain(now.boot_ns, resources, self._guard)
        turn = turn._replace(evidence=(*turn.evidence, *evidence))
        joiner = parts.joiner
        if joiner is None:
            return turn
        return self._guard.run("remote_join", lambda: self._joined_remotely(turn, joiner)) or turn

    def _joined_remotely(self, turn: Turn, joiner: RemoteJoiner) -> Turn:
        """Return the turn with what other nodes have asked and answered."""
        parts, now, in_force = self._parts, turn.now, turn.in_force
        remote, asked = joiner.turn(self._join, in_force, parts.evidence.of, now.boot_s)
        parts.evidence.remote(remote.answers)
        sampled = turn.sampled
        if parts.sampler and len(asked):
            sets, pair_key = in_force.rules.sets, in_force.plan.pair_key
            theirs = parts.sampler.decide_other_halves(asked, sets, pair_key, now.boot_ns)
            sampled = Sampled.concatenate([sampled, theirs])
        held = unsent.of_pairs(remote.pairs)
        return turn._replace(remote=remote, sampled=sampled, evidence=(*turn.evidence, *held))

    def _with_calls(self, turn: Turn, *, settled: bool, last: bool) -> Turn:
        """Return the turn with what servers waited for, and with the calls that become spans for it."""
        join, now_ns, in_force, sampler = self._calls, turn.now.boot_ns, turn.in_force, self._parts.sampler
        join.keep(turn.halves, now_ns)
        join.note_sampled(turn.sampled)
        called = join.settle(now_ns, all_of_them=last) if settled else None
        calls = Calls(called, turn.calls.links, join.open(now_ns))
        if called is None or sampler is None:
            return turn._replace(calls=calls)
        at, pair_key = call_links.shown(called), in_force.plan.pair_key
        wanted = call_links.wanted(called, at)
        taken = sampler.decide_other_halves(wanted, in_force.rules.sets, pair_key, now_ns, Reason.CALL)
        calls = calls._replace(links=call_links.links(called, at, taken, pair_key))
        return turn._replace(calls=calls, sampled=Sampled.concatenate([turn.sampled, taken]))

    def _counted(self, turn: Turn, plan_age_s: float, *, last: bool) -> Turn:
        """Return the turn with the kernel's counts, and the agent's own figures."""
        parts, resources = self._parts, turn.in_force.resources
        counts = self._guard.run("counts", lambda: self._counts(turn, last=last))
        if counts is None:
            return turn
        self.give_way()
        owners = counts.living.keys["owner"].tolist()
        pressure = self._guard.run("pressure", lambda: parts.pressure.read(owners, resources))
        self.give_way()
        stats = self._guard.run("stats", lambda: self._stats(turn, counts, plan_age_s))
        gained = self._guard.run("evidence", lambda: parts.evidence.counted(resources, turn.now.boot_s))
        return turn._replace(counts=counts, stats=stats, gained=gained or (), pressure=pressure or {})

    def _counts(self, turn: Turn, *, last: bool) -> Snapshot:
        parts, of_http2 = self._parts, self._parts.http2.lost
        full = last or of_http2.get("counts_full", 0) > 0
        counts = parts.counting.read(turn.in_force.resources, turn.now, everything=full)
        return counts._replace(lost={**added(counts.lost, of_http2), UNMEASURED: self._unmeasured})

    def _stats(self, turn: Turn, counts: Snapshot, plan_age_s: float) -> AgentStats:
        parts = self._parts
        stats = AgentStats(
            records_read=self._records,
            lost=counts.lost,
            sampled_out=int(counts.counts.values["sampled_out_records"].sum()),
            remote_joins=parts.joiner.counts if parts.joiner else {},
            evidence=parts.evidence.outcomes,
            evidence_lost=parts.evidence.lost,
            calls=self._calls.outcomes,
            failures=self._guard.failures.copy(),
            plan_age_s=plan_age_s,
            drain_lag_s=self._lag_s,
            spans_limited=parts.sampler.limited(turn.now.boot_ns - _LIMITED_NS) if parts.sampler else (),
            pressure_unread=parts.pressure.unread,
        )
        self._lag_s = 0.0
        return stats
