"""Which exchanges become spans: slow ones, failed ones, a share that both hosts choose alike; and their other halves.

The share follows OpenTelemetry's consistent probability sampling (the lowest 56 bits of the trace id against a
threshold), so both halves of an exchange are chosen or neither. The telemetry pipeline calls `select()` on each batch,
and with other policies to sample other halves; `measure.remote_join` to choose what it asks for.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.vocabulary.records import Outcome

_RANDOM_BITS = 56
_NODE = ""  # no LatencyProbe's name: the budget of all together


class Reason(enum.IntEnum):
    """Why an exchange became a span, in the order in which the budget keeps them."""

    ERROR = 0
    SLOW = 1
    RATIO = 2
    OTHER_HALF = 3  # its other half is slow or failed, and has become a span


_FOR_ITSELF = [Reason.ERROR + 1, Reason.SLOW + 1]


@dataclass(frozen=True)
class Selected:
    """`index`: ascending rows of the chosen halves; `reason`: u8, a Reason each.

    `ratio`: f8, the probability with which an exchange like this one is chosen: 1 for slow and failed ones, the
    policy's ratio for others, times what the kernel and the budget left of its like. `left_out`: chosen
    ones that the budget had no room for.
    """

    index: NDArray[np.intp]
    reason: NDArray[np.uint8]
    ratio: NDArray[np.float64]
    left_out: int = 0


class Budget:
    """Spans that each LatencyProbe, and all together, may still make on this node. One second's worth is saved up.

    `per_second`: of all together.
    """

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._left: dict[str, tuple[float, int]] = {}

    def left(self, probe: str, per_second: int, now_ns: int) -> int:
        """Return how many spans `probe` may make now. `now_ns`: a clock that never steps back."""
        left, since_ns = self._left.get(probe, (float(per_second), now_ns))
        left = min(per_second, left + per_second * (now_ns - since_ns) / 1e9)
        self._left[probe] = (left, now_ns)
        return int(left)

    def spend(self, probe: str, spans: int) -> None:
        """Take `spans` off what is left."""
        left, since_ns = self._left[probe]
        self._left[probe] = (left - spans, since_ns)


def lone(pairs: Pairs) -> Halves:
    """Return the halves that nobody chose, of pairs whose other half is slow or failed and was chosen."""
    client, server = pairs.client, pairs.server
    servers = np.isin(client.chosen, _FOR_ITSELF) & (server.chosen == 0)
    clients = np.isin(server.chosen, _FOR_ITSELF) & (client.chosen == 0)
    return Halves.concatenate([client.take(clients), server.take(servers)])


def other_halves(halves: Halves, sets: Mapping[int, TargetSet], budget: Budget, now_ns: int) -> Selected:
    """Choose all of these halves, as far as the budget goes. Arguments as for `select()`."""
    everything = {i: replace(one, spans=SpanPolicy(-1, 0.0, one.spans.max_per_second)) for i, one in sets.items()}
    selected = select(halves, everything, budget, now_ns)
    return replace(selected, reason=np.full_like(selected.reason, Reason.OTHER_HALF))


def select(halves: Halves, sets: Mapping[int, TargetSet], budget: Budget, now_ns: int) -> Selected:
    """Choose the halves that become spans, by the span policies of their target sets (`Rules.sets`).

    What exceeds the budget of a LatencyProbe, or of the node, goes in the order of Reason, within one by the trace id:
    both sides drop the same. Halves of unknown sets, and such as are no SLI events, are never chosen.
    """
    table = np.zeros(max(sets, default=0) + 2, [("slower_ns", "i8"), ("reject_below", "u8"), ("probe", "i4")])
    probes = sorted({s.probe for s in sets.values()})
    table["probe"] = -1
    for number, target_set in sets.items():
        policy = target_set.spans
        reject_below = round((1 - policy.ratio) * 2**_RANDOM_BITS)
        table[number] = (policy.slower_than_ns, reject_below, probes.index(target_set.probe))
    of_row = table[np.minimum(halves.rec["target_set"], len(table) - 1)]
    randomness = halves.trace_id[:, 1] & np.uint64(2**_RANDOM_BITS - 1)
    failed = halves.rec["outcome"] != Outcome.OK
    slow = halves.duration_ns > of_row["slower_ns"]
    wanted = (of_row["probe"] >= 0) & halves.counted & (failed | slow | (randomness >= of_row["reject_below"]))

    index = np.flatnonzero(wanted)
    reason = np.select([failed[index], slow[index]], [Reason.ERROR, Reason.SLOW], Reason.RATIO).astype(np.uint8)
    ratio = np.where(reason == Reason.RATIO, 1 - of_row["reject_below"][index] / 2**_RANDOM_BITS, 1.0)
    ratio /= np.where(reason == Reason.RATIO, halves.adjusted_count[index], 1)
    kept = np.ones(len(index), np.bool_)
    per_second = {s.probe: s.spans.max_per_second for s in sets.values()}  # the last one is in force
    shares = [(probe, per_second[probe], of_row["probe"][index] == i) for i, probe in enumerate(probes)]
    for whose, limit, mine in (*shares, (_NODE, budget.per_second, np.ones(len(index), np.bool_))):
        offered = np.flatnonzero(mine & kept)
        left = budget.left(whose, limit, now_ns)
        if len(offered) > left:
            order = np.lexsort((~randomness[index][offered], reason[offered]))
            kept[offered[order[left:]]] = False
            for r in Reason:
                of_reason = offered[reason[offered] == r]
                ratio[of_reason] *= kept[of_reason].mean() if len(of_reason) else 1.0
        budget.spend(whose, int(kept[offered].sum()))
    return Selected(index[kept], reason[kept], ratio[kept], int(len(kept) - kept.sum()))
