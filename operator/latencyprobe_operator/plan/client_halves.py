"""For which targets the client half of a pod is measured, by the plan that its node's agent follows. Pure."""

from collections import defaultdict
from collections.abc import Set

from latencyprobe.plan import NodePlan
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.derived import Derived
from latencyprobe_operator.plan.planner import Planner

NAMED = 32  # targets of a pod, in an answer: as many as a LatencyProbe has

Ids = tuple[str, ...]  # of targets


class ClientHalves:
    """Looked up by node and pod, in time that does not follow the plan."""

    def __init__(self, planner: Planner, agents: Agents) -> None:
        self._planner = planner
        self._agents = agents
        self._wanted = Derived(_by_caller)
        self._applied = Derived(_by_caller)
        self._served = Derived(_served)
        self._namespaces = Derived(_namespaces)

    def measured(self, node: str, uid: str) -> Ids:
        """Return the targets for which the node's agent measures this pod's client half: none while it has failed."""
        plan, agent = self._agents.applied.get(node), self._agents.of.get(node)
        if plan is None or (agent is not None and agent.status.error):
            return ()
        return self._applied.of(plan).get(uid, ())

    def awaited(self, node: str, uid: str) -> bool:
        """Return whether the node's plan asks for this pod's client half, and its agent does not follow it yet."""
        plan = self._planner.plans.get(node)
        return plan is not None and uid in self._wanted.of(plan) and not self.measured(node, uid)

    def named(self, asker: str, node: str, uid: str) -> Ids:
        """Return as many of the measured ones as a node that asks is told of: where there are more, of those that it
        serves itself, which are all that it can give a parent to."""
        found = self.measured(node, uid)
        if len(found) <= NAMED:
            return found
        plan = self._planner.plans.get(asker)
        served = self._served.of(plan) if plan is not None else frozenset()
        return tuple(id_ for id_ in found if id_ in served)[:NAMED]

    def limited(self, node: str, uid: str) -> bool:
        """Return whether more is measured of a pod than `named` tells; what it tells depends on who asks, and when."""
        return len(self.measured(node, uid)) > NAMED

    def namespaces(self, asker: str) -> frozenset[str]:
        """Return the namespaces of whose LatencyProbes a node measures any."""
        plan = self._planner.plans.get(asker)
        return self._namespaces.of(plan) if plan is not None else frozenset()

    def keep(self, nodes: Set[str]) -> None:
        """Forget all other nodes."""
        for by_caller in (self._wanted, self._applied):
            by_caller.keep(nodes)
        for names in (self._served, self._namespaces):
            names.keep(nodes)


def _by_caller(plan: NodePlan) -> dict[str, Ids]:
    """Return the ids of targets by the uid of a pod whose client half they ask for; pods share them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for target in plan.targets:
        for uid in target.callers:
            found[uid].append(target.id)
    shared: dict[Ids, Ids] = {}
    return {uid: shared.setdefault(ids := tuple(of), ids) for uid, of in found.items()}


def _namespaces(plan: NodePlan) -> frozenset[str]:
    return frozenset(target.namespace for target in plan.targets)


def _served(plan: NodePlan) -> frozenset[str]:
    return frozenset(target.id for target in plan.targets if target.pods)
