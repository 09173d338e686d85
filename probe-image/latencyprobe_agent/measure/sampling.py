"""Which exchanges become spans: slow ones, failed ones, a share that both hosts decide alike; and their other halves.

The share is decided as in OpenTelemetry's consistent probability sampling, 56 random bits against a threshold. The bits
are of the join key, so both halves of an exchange are sampled or neither.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure import streaming
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.halves import NO_HALVES, Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.rules import TargetSet

_RANDOM_BITS = 56  # the highest ones of the join key
_LONGEST_WAIT_S = 10.0  # of records for the agent, that the budget makes up for
_NODE = ""  # no LatencyProbe's name: the budget of all together


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


class Budget:
    """Spans that each LatencyProbe, and all together, may still make on this node. `per_second`: of all together.

    One second's worth is saved up, or as many seconds' as the oldest of what comes has waited for us: an agent that the
    machine held up lacks no spans for it.
    """

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._left: dict[str, tuple[float, int]] = {}
        self._limited_ns: dict[str, int] = {}

    def left(self, probe: str, per_second: int, now_ns: int, waited_ns: int = 0) -> int:
        """Return how many spans `probe` may make now.

        `now_ns`: a clock that never steps back; `waited_ns`: since the oldest of those that come now had ended.
        """
        saved_s = min(max(waited_ns / 1e9, 1.0), _LONGEST_WAIT_S)
        left, since_ns = self._left.get(probe, (float(per_second), now_ns))
        left = min(per_second * saved_s, left + per_second * (now_ns - since_ns) / 1e9)
        self._left[probe] = (left, now_ns)
        return int(left)

    def spend(self, probe: str, spans: int) -> None:
        """Take `spans` off what is left."""
        left, since_ns = self._left[probe]
        self._left[probe] = (left - spans, since_ns)

    def limit(self, probes: Iterable[str], now_ns: int) -> None:
        """Note that what all together may make has left out spans of these."""
        self._limited_ns |= dict.fromkeys(probes, now_ns)

    def limited(self, since_ns: int) -> set[str]:
        """Return those that this was noted of since then."""
        return {probe for probe, at_ns in self._limited_ns.items() if at_ns >= since_ns}


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

    What exceeds the budget of a LatencyProbe, or of the node, goes in the order of Reason, within one by the join key:
    both sides drop the same. Halves of unknown sets, and such as are not `shown`, are never sampled.
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
    by_ratio = reason == _RATIO
    ratio = np.where(by_ratio, 1 - of_row.reject_below / 2**_RANDOM_BITS, 1.0) / some.adjusted_count
    kept = np.ones(len(index), np.bool_)
    waited_ns = now_ns - int(some.end_ns.min())
    per_second = {s.probe: s.spans.max_per_second for s in sets.values()}  # the last one is in force
    shares = [(probe, per_second[probe], of_row.probe == i) for i, probe in enumerate(of_row.probes)]
    for whose, limit, mine in (*shares, (_NODE, budget.per_second, np.ones(len(index), np.bool_))):
        in_share = np.flatnonzero(mine & kept)
        left = budget.left(whose, limit, now_ns, waited_ns)
        if len(in_share) > left:
            order = np.lexsort((~randomness[in_share], reason[in_share]))
            dropped = in_share[order[left:]]
            kept[dropped] = False
            if whose == _NODE:
                theirs = np.unique(np.broadcast_to(of_row.probe, len(index))[dropped])
                budget.limit([of_row.probes[i] for i in theirs.tolist()], now_ns)
            for r in Reason:
                of_reason = in_share[reason[in_share] == r]
                ratio[of_reason] *= kept[of_reason].mean() if len(of_reason) else 1.0
        budget.spend(whose, int(kept[in_share].sum()))
    return Decision(index[kept], reason[kept], ratio[kept], int(len(kept) - kept.sum()))


class _Policies:
    """The policies of the target sets that halves belong to: of each row, or one value where they all have the same.

    `known`: the set has one; `probe`: the place of its LatencyProbe among `probes`.
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
        self.known = self.probe >= 0
