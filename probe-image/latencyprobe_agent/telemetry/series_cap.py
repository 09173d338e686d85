"""How many series there may be: of a metric and target set, and of a namespace on this node. The rest is folded into
`other`, and counted; where a namespace has no room for that either, it is only counted.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping

from latencyprobe.plan import Target
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.telemetry.shared_room import SharedRoom, payer
from latencyprobe_agent.vocabulary.conventions import Metric

_FOLDED = 10  # times the cap: so many folded series of a namespace are recognised


class SeriesCap:
    """`cap`: series of a metric and target set; `room`: of all of an agent, and as many of `other`. `overflow`: those
    of each namespace that found no room, each once as long as it is recognised.

    `admit()` precedes a series, `admit_other()` one of `other`, `release()` follows both.
    """

    def __init__(self, cap: int, room: int) -> None:
        self.overflow: Counter[str] = Counter()
        self._cap = cap
        self._own, self._others = SharedRoom(room), SharedRoom(room)
        self._members: Counter[tuple[Metric, int]] = Counter()
        self._folded: dict[str, set[int]] = defaultdict(set)  # hashes
        self._sets: Mapping[int, TargetSet] = {}

    def follow(self, sets: Mapping[int, TargetSet], targets: Iterable[Target]) -> None:
        """Take the target sets by number (`Rules.sets`), and the targets of the plan. Of numbers that get another
        meaning everything is released."""
        self._sets = sets
        namespaces = {target.namespace for target in targets}
        self._own.namespaces = self._others.namespaces = len(namespaces)
        self.overflow = Counter({namespace: self.overflow[namespace] for namespace in namespaces})
        for gone in self._folded.keys() - namespaces:
            del self._folded[gone]

    def namespace(self, target_set: int) -> str:
        """Return whose room a target set takes."""
        return payer(self._sets, target_set)[0]

    def admit(self, metric: Metric, target_set: int, series: Hashable) -> bool:
        """Return whether there is room for one more series, and take it; else it has to be folded."""
        namespace, room = payer(self._sets, target_set)
        if self._members[metric, target_set] < self._cap and self._own.take(namespace, room):
            self._members[metric, target_set] += 1
            return True
        folded, one = self._folded[namespace], hash(series)
        if one not in folded and len(folded) < _FOLDED * self._cap:
            folded.add(one)
            self.overflow[namespace] += 1
        return False

    def admit_other(self, target_set: int) -> bool:
        """Return whether there is room for one more series of `other`, and take it; else it has to be left out."""
        return self._others.take(*payer(self._sets, target_set))

    def release(self, metric: Metric, target_set: int, *, other: bool = False) -> None:
        """Give the room of one series back."""
        (self._others if other else self._own).give_back(*payer(self._sets, target_set))
        self._members[metric, target_set] -= not other

    def share_out(self) -> set[str]:
        """Share the room out anew. Return the namespaces whose series have to make room for others'."""
        return self._own.share_out() | self._others.share_out()
