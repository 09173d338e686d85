"""What each objective has to count, by its plan alone. For test_edits.py."""

from collections import Counter, defaultdict

from latencyprobe.plan import NodePlan, PlannedObjective, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.vocabulary.records import Outcome, RuleSide
from tests.latencyprobe_agent.edits_node import EXCHANGES, Half, ends


def belongs(half: Half, target: Target) -> bool:
    ports = next((one.ports for one in target.pods if one.uid == half.pod.uid), None)
    own = ports is not None and (half.port in ports or not ports)
    if (target.role is Perspective.SERVER) == (half.side is RuleSide.LOCAL):
        return own
    dialled = any(one.address == half.address and one.port in (0, half.port) for one in target.endpoints)
    return half.side is RuleSide.PEER and half.pod.uid in target.callers and dialled


def left_out(half: Half, plan: NodePlan) -> bool:
    """Whether both ends are replicas, and some target does not want what they say."""
    return any(
        (end.address, end.port) == (half.address, half.port)
        for target in plan.targets
        for one in target.replicas
        if half.pod.uid in one.pods
        for end in (target.endpoints if one.endpoints is None else one.endpoints)
    )


def judged(plan: NodePlan, objective: PlannedObjective) -> Counter[str]:
    """Good and bad of one `Kernel.load()`."""
    target = next(one for one in plan.targets if one.id == objective.target)
    side = RuleSide.LOCAL if objective.perspective is Perspective.SERVER else RuleSide.PEER
    halves = [
        half
        for both in ends()
        for half in both
        if half.side is side and belongs(half, target) and not left_out(half, plan)
    ]
    threshold_ns = target.thresholds_ns[objective.threshold_index]
    good = sum(
        duration_ns <= threshold_ns and (outcome is Outcome.OK or not objective.errors_count_as_bad)
        for duration_ns, outcome in EXCHANGES
    )
    return Counter(good=good * len(halves), bad=(len(EXCHANGES) - good) * len(halves))


class Witness:
    """Good and bad by (objective's id, hash): ever, and since it came into force the last time."""

    def __init__(self) -> None:
        self.ever: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.since: dict[tuple[str, str], Counter[str]] = {}

    def follow(self, plan: NodePlan) -> None:
        self.since = {at: self.since.get(at, Counter()) for at in definitions(plan)}

    def load(self, plan: NodePlan, after: NodePlan) -> None:
        """See one `Kernel.load()`, which counts for what is in force both before and after."""
        for at in definitions(plan).keys() & definitions(after).keys():
            events = judged(plan, definitions(plan)[at])
            self.ever[at] += events
            self.since[at] = self.since[at] + events


def definitions(plan: NodePlan) -> dict[tuple[str, str], PlannedObjective]:
    return {(one.id, one.hash): one for one in plan.objectives}
