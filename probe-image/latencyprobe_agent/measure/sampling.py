"""Which exchanges become spans: slow ones, failed ones, a share that both hosts decide alike; and their other halves.

The share is decided as in OpenTelemetry's consistent probability sampling, 56 random bits against a threshold. The bits
are of the join key, so both halves of an exchange are sampled or neither.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure import streaming
from latencyprobe_agent.measure.budget import Budget
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.halves import NO_HALVES, Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.rules import TargetSet

_RANDOM_BITS = 56  # the highest ones of the join key


class Reason(enum.IntEnum):
    """Why an exchange becomes a span, in the order in which the budget keeps them."""

    ERROR = 0
    SLOW = 1
    RATIO = 2
    OTHER_HALF = 3  # its other half is slow or failed, and has become a span
    CALL = 4  # an exchange that is slow or failed, or the other half of one, waited for it


_ERROR, _SLOW, _RATIO = (np.uint8(reason) for reason in (Reason.ERROR, Reason.SLOW, Reason.RATIO))


@dataclass(frozen=True)
class Decision:
    """`index`: ascending rows of the sampled halves; `reason`: u8, a Reason each.

    `ratio`: f8, the probability with which an exchange like this one is sampled: 1 for slow and failed ones, the
    policy's ratio for others, 1 for other halves, times what the kernel and the budget left of its like. `over_budget`:
    how many more would have been sampled.
    """

    index: NDArray[np.intp]
    reason: NDArray[np.uint8]
    ratio: NDArray[np.float64]
    over_budget: int = 0


@dataclass(frozen=True)
class Sampled:
    """n halves that become spans; `trace_id`: u64[n, 2], high and low half; the others as in `Decision`."""

    halves: Halves
    trace_id: NDArray[np.uint64]
    reason: NDArray[np.uint8]
    ratio: NDArray[np.float64]
    over_budget: int = 0

    def __len__(self) -> int:
        return len(self.halves)

    @classmethod
    def of(cls, halves: Halves, decision: Decision, pair_key: bytes) -> "Sampled":
        """Return the rows that were decided for."""
        some = halves.take(decision.index)
        return cls(some, some.trace_ids(pair_key), decision.reason, decision.ratio, decision.over_budget)

    @staticmethod
    def concatenate(parts: Sequence["Sampled"]) -> "Sampled":
        """Return all parts (at least one) as one."""
        filled = [part for part in parts if len(part)] or list(parts[:1])
        over_budget = sum(part.over_budget for part in parts)
        if len(filled) == 1:
            return replace(filled[0], over_budget=over_budget)
        return Sampled(
            Halves.concatenate([part.halves for part in filled]),
            np.concatenate([part.trace_id for part in filled]),
            np.concatenate([part.reason for part in filled]),
            np.concatenate([part.ratio for part in filled]),
            over_budget,
        )


_NOBODY = Decision(np.zeros(0, np.intp), np.zeros(0, np.uint8), np.zeros(0))


class Sampler:
    """Decides on every half before anybody else gets it. Other halves have as large a budget of their own."""

    def __init__(self, per_second: int) -> None:
        self._budget = Budget(per_second)
        self._other_halves = Budget(per_second)

    def decide(
        self, halves: Halves, sets: Mapping[int, TargetSet], pair_key: bytes, now_ns: int
    ) -> tuple[Halves, Sampled]:
        """Return the halves with `sampled` set, and those that become spans. `sets`: `Rules.sets`; boot time."""
        decision = decide(halves, sets, self._budget, now_ns)
        if not len(decision.index):
            return halves, Sampled.of(halves, decision, pair_key)
        marks = np.zeros(len(halves), np.uint8)
        marks[decision.index] = decision.reason + np.uint8(1)
        decided = replace(halves, sampled=marks)
        return decided, Sampled.of(decided, decision, pair_key)

    def limited(self, since_ns: int) -> tuple[str, ...]:
        """Return the LatencyProbes (`namespace/probe`) that lacked spans of the node's since then, not of their own."""
        return tuple(sorted(self._budget.limited(since_ns) | self._other_halves.limited(since_ns)))

    def decide_other_halves(
        self,
        halves: Halves,
        sets: Mapping[int, TargetSet],
        pair_key: bytes,
        now_ns: int,
        reason: Reason = Reason.OTHER_HALF,
    ) -> Sampled:
        """Return those of these halves that become spans because their other half has become one, or another `reason`
        lies in a span that there is."""
        return Sampled.of(halves, decide_all(halves, sets, self._other_halves, now_ns, reason), pair_key)


def other_halves(pairs: Pairs) -> Halves:
    """Return the halves that were not sampled, of pairs whose other half is slow or failed and was sampled."""
    client, server = (of(lambda half: half.sampled) for of in (pairs.of_clients, pairs.of_servers))
    if not (client.any() or server.any()):
        return NO_HALVES
    servers = np.flatnonzero(_for_itself(client) & (server == 0))
    clients = np.flatnonzero(_for_itself(server) & (client == 0))
    if not (len(servers) or len(clients)):
        return NO_HALVES
    return Halves.concatenate([pairs.clients(clients), pairs.servers(servers)])


def _for_itself(sampled: NDArray[np.uint8]) -> NDArray[np.bool_]:
    of_itself: NDArray[np.bool_] = (sampled == Reason.ERROR + 1) | (sampled == Reason.SLOW + 1)
    return of_itself


def decide_all(
    halves: Halves,
    sets: Mapping[int, TargetSet],
    budget: Budget,
    now_ns: int,
    reason: Reason = Reason.OTHER_HALF,
) -> Decision:
    """Sample all of these halves, as far as the budget goes. Arguments as for `decide()`."""
    everything = {i: replace(one, spans=SpanPolicy(-1, 0.0, one.spans.max_per_second)) for i, one in sets.items()}
    decision = decide(halves, everything, budget, now_ns)
    return replace(decision, reason=np.full_like(decision.reason, reason))


def decide(halves: Halves, sets: Mapping[int, TargetSet], budget: Budget, now_ns: int) -> Decision:
    """Decide which halves become spans, by the span policies of their target sets (`Rules.sets`).

    What exceeds the budget of a LatencyProbe, or its namespace's share of the node's, goes in the order of Reason,
    within one by the join key: both sides drop the same.
    """
    if not len(halves):
        return _NOBODY
    policies = _Policies(halves, sets)
    failed = streaming.failed(halves.rec)
    slow = halves.judged_ns > policies.slower_ns
    randomness = halves.join_key >> np.uint64(64 - _RANDOM_BITS)
    index = np.flatnonzero(policies.known & halves.shown & (failed | slow | (randomness >= policies.reject_below)))
    if not len(index):
        return _NOBODY
    some, randomness, failed, slow = halves.take(index), randomness[index], failed[index], slow[index]
    of_row = _Policies(some, sets)

    reason = np.where(failed, _ERROR, np.where(slow, _SLOW, _RATIO))
    ratio = np.where(reason == _RATIO, 1 - of_row.reject_below / 2**_RANDOM_BITS, 1.0) / some.adjusted_count
    probe, namespace = (np.broadcast_to(of, len(index)) for of in (of_row.probe, of_row.namespace))
    kept = _Kept(np.ones(len(index), np.bool_), reason, ratio, randomness)
    waited_ns = now_ns - int(some.end_ns.min())
    per_second = {s.probe: s.spans.max_per_second for s in sets.values()}  # the last one is in force
    for i, name in enumerate(of_row.probes):
        mine = probe == i
        kept.cut(mine, budget.left(name, per_second[name], now_ns, waited_ns))
        budget.spend(name, int((kept.rows & mine).sum()))
    namespaces = {s.namespace for s in sets.values()}
    budget.keep(per_second.keys() | namespaces)
    wanted = {name: int((kept.rows & (namespace == i)).sum()) for i, name in enumerate(of_row.namespaces)}
    given = budget.shared_out(wanted, len(namespaces), now_ns, waited_ns)
    for i, name in enumerate(of_row.namespaces):
        dropped = kept.cut(namespace == i, given[name])
        budget.limit([of_row.probes[i] for i in np.unique(probe[dropped]).tolist()], now_ns)
    return Decision(index[kept.rows], reason[kept.rows], ratio[kept.rows], len(index) - int(kept.rows.sum()))


class _Kept(NamedTuple):
    """n halves that may become spans. `rows`: bool[n], which do as far as is known; `ratio`: f8[n], of these."""

    rows: NDArray[np.bool_]
    reason: NDArray[np.uint8]
    ratio: NDArray[np.float64]
    randomness: NDArray[np.uint64]

    def cut(self, mine: NDArray[np.bool_], most: int) -> NDArray[np.intp]:
        """Keep so many of some rows at most; return those that go."""
        at = np.flatnonzero(mine & self.rows)
        if len(at) <= most:
            return at[:0]
        dropped = at[np.lexsort((~self.randomness[at], self.reason[at]))[most:]]
        self.rows[dropped] = False
        for reason in Reason:
            of_reason = at[self.reason[at] == reason]
            self.ratio[of_reason] *= self.rows[of_reason].mean() if len(of_reason) else 1.0
        return dropped


class _Policies:
    """The policies of the target sets that halves belong to: of each row, or one value where they all have the same.

    `known`: the set has one; `probe`, `namespace`: the place of its LatencyProbe among `probes`, `namespaces`.
    """

    def __init__(self, halves: Halves, sets: Mapping[int, TargetSet]) -> None:
        found = groups([halves.rec["target_set"]])
        present = [sets.get(number) for number in halves.rec["target_set"][found.first].tolist()]
        of_row = found.of_row if len(present) > 1 else 0
        self.probes = sorted({one.probe for one in present if one})
        self.slower_ns = np.array([one.spans.slower_than_ns if one else 0 for one in present])[of_row]
        rejected = [round((1 - one.spans.ratio) * 2**_RANDOM_BITS) if one else 0 for one in present]
        self.reject_below = np.array(rejected, np.uint64)[of_row]
        self.probe = np.array([self.probes.index(one.probe) if one else -1 for one in present])[of_row]
        self.namespaces = sorted({one.namespace for one in present if one})
        self.namespace = np.array([self.namespaces.index(one.namespace) if one else -1 for one in present])[of_row]
        self.known = self.probe >= 0
