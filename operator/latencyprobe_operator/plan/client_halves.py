"""For which targets the client half of a pod is measured, by the plan that its node's agent follows. Pure."""

from collections import defaultdict
from collections.abc import Set
from itertools import islice

from latencyprobe.plan import NodePlan
from latencyprobe_operator.plan.agents import Agent, Agents, moved
from latencyprobe_operator.plan.derived import Derived
from latencyprobe_operator.plan.planner import Planner

NAMED = 32  # targets of a pod, in an answer: as many as a LatencyProbe has
LOOK_S = 5.0  # between two looks for agents that have fallen silent
SILENT_AT_ONCE = 10  # nodes: a zone may fall silent, and their plans are looked through

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
        self._silent: dict[str, Agent] = {}  # by node, with the last report: another one ends the silence
        self._next_look_s = 0.0

    def measured(self, node: str, uid: str) -> Ids:
        """Return the targets for which the node's agent measures this pod's client half: none while it has failed, is
        silent, or counts alone."""
        plan, agent = self._agents.applied.get(node), self._agents.of.get(node)
        if plan is None or self._agents.counts_alone(node):
            return ()
        if agent is not None and (agent.status.error or agent is self._silent.get(node)):
            return ()
        return self._applied.of(plan).get(uid, ())

    def awaited(self, node: str, uid: str) -> bool:
        """Return whether the node's plan asks for this pod's client half, and its agent does not follow it yet, but
        may at any time."""
        plan = self._planner.plans.get(node)
        wanted = plan is not None and uid in self._wanted.of(plan)
        return wanted and not self._agents.counts_alone(node) and not self.measured(node, uid)

    def fallen_silent(self, now_s: float) -> dict[str, frozenset[str]]:
        """Look for agents that have fallen silent, once in a while. Returns, by node, the addresses of callers that
        they measured until then. `now_s`: of the monotonic clock."""
        if now_s < self._next_look_s:
            return {}
        of, known = self._agents.of, self._silent
        silent = (n for n, agent in of.items() if agent is not known.get(n) and self._agents.is_silent(agent, now_s))
        found = list(islice(silent, SILENT_AT_ONCE))
        if len(found) < SILENT_AT_ONCE:
            self._next_look_s = now_s + LOOK_S
        known.update((node, of[node]) for node in found)
        return {node: moved(self._agents.applied.get(node), None) for node in found}

    def named(self, asker: str, node: str, uid: str) -> Ids:
        """Return as many of the measured ones as a node that asks is told of: where there are more, of those that it
        serves itself, which are all that it can give a parent to."""
        return self.told(asker, self.measured(node, uid))

    def told(self, asker: str, found: Ids) -> Ids:
        """Return as many of the measured ones as `named` does."""
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
        for node in self._silent.keys() - nodes:
            del self._silent[node]


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
