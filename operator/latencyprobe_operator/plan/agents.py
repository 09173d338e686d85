"""What the agents last reported, and what follows from it: which nodes are ready, and which plan each has applied.

Memory only: after a restart every agent reports again as soon as its plan stream is open.
"""

import enum
import math
from collections.abc import Callable, Iterable

import msgspec

from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.variants import LACKING
from latencyprobe.wire import STATUS_S

MISSED = 3  # pauses between two reports without any: the agent is silent
STARTING_S = 60.0  # label, pod, image pull and load may take this long before an agent counts as missing
APPLYING_S = 10.0  # a plan this young may still be on its way to a ready agent


class NodeState(enum.StrEnum):
    """What a node that must measure does."""

    READY = "ready"
    STARTING = "starting"
    MISSING = "missing"
    FAILED = "failed"


class Agent(msgspec.Struct, frozen=True):
    """An agent's last report and when it came, in s of the monotonic clock; exchanges by class of each target (id).
    `pause_s`: within what time the next one was to come."""

    status: AgentStatus
    reported_s: float
    classes: dict[str, dict[str, int]] = {}
    pause_s: float = STATUS_S


class Agents:
    """Reports by node. All times are s of the monotonic clock. `remarkable`: the nodes whose agents report more than
    that all is well, so that who looks for that need not look at all. `applied`: the plans that they followed last.
    `pause_s`: how often agents shall report now."""

    def __init__(self, pause_s: Callable[[], float] = lambda: STATUS_S) -> None:
        self.of: dict[str, Agent] = {}
        self.remarkable: set[str] = set()
        self.applied: dict[str, NodePlan] = {}
        self.refusals: dict[str, str] = {}
        self._pause_s = pause_s
        self._expected_since: dict[str, float] = {}
        self._planned_at: dict[str, float] = {}
        self._ready_since: dict[str, float] = {}
        self._targets: dict[str, tuple[NodePlan, frozenset[str]]] = {}  # of the plan that was looked at last
        # a plan that was newer than what the agent reported last: where plans change faster than agents report, none of
        # them would ever be the newest
        self._awaited: dict[str, NodePlan] = {}

    def reported(self, node: str, status: AgentStatus, plan: NodePlan, now_s: float) -> frozenset[str]:
        """Take a report. `plan`: the node's current one. Returns the addresses of callers of which other targets are
        measured than before. An error moves none: who asks meanwhile is answered accordingly, and for a short time;
        safe mode does, as it lasts."""
        before = self._spans_by(node)
        classes = {target.id: target.classes for target in status.targets}
        self.of[node] = Agent(status, now_s, classes, self._pause_s())
        (self.remarkable.add if _remarkable(status) else self.remarkable.discard)(node)
        self.refusals.pop(node, None)
        awaited = self._awaited.get(node, plan)
        if not status.error and status.generation >= min(awaited.generation, plan.generation):
            self.applied[node] = plan if status.generation >= plan.generation else awaited
            self._ready_since.setdefault(node, now_s)
        if status.generation >= plan.generation:
            self._awaited.pop(node, None)
        elif status.generation >= awaited.generation or awaited is plan:
            self._awaited[node] = plan
        return moved(before, self._spans_by(node))

    def counts_alone(self, node: str) -> bool:
        """Return whether a node's agent is in safe mode: it makes no spans, for an hour or so."""
        agent = self.of.get(node)
        return agent is not None and agent.status.safe_mode != ""

    def _spans_by(self, node: str) -> NodePlan | None:
        return None if self.counts_alone(node) else self.applied.get(node)

    def refused(self, node: str, why: str) -> None:
        """Remember why an agent that called itself this node's was turned away."""
        self.refusals[node] = why

    def planned(self, nodes: frozenset[str], expected: frozenset[str], now_s: float) -> frozenset[str]:
        """Take note that these nodes' plans changed, and of all nodes that must measure. Returns as `reported`."""
        ended = [self.applied[node] for node in self.applied.keys() - expected - nodes]
        self._planned_at.update(dict.fromkeys(nodes, now_s))
        self._expected_since = {node: self._expected_since.get(node, now_s) for node in expected}
        for node in self.of.keys() - expected:
            if self.is_silent(self.of[node], now_s):
                del self.of[node]
                self.remarkable.discard(node)
        for by_node in (self._planned_at, self.applied, self.refusals, self._targets, self._awaited):
            for node in by_node.keys() - expected - nodes:
                del by_node[node]
        for node in self._ready_since.keys() - expected:
            del self._ready_since[node]
        return frozenset().union(*(moved(plan, None) for plan in ended))

    def state(self, node: str, plan: NodePlan, now_s: float) -> NodeState:
        """Return what a node that must measure does."""
        agent = self.of.get(node)
        if agent is None or self.is_silent(agent, now_s):
            young = now_s - self._expected_since.get(node, now_s) < STARTING_S
            return NodeState.STARTING if young and node not in self._ready_since else NodeState.MISSING
        if agent.status.error:
            return NodeState.FAILED
        if agent.status.generation >= plan.generation:
            return NodeState.READY
        young = now_s - self._planned_at.get(node, now_s) < APPLYING_S
        return NodeState.READY if young and node in self._ready_since else NodeState.STARTING

    def states(self, nodes: Iterable[str], plan_of: Callable[[str], NodePlan], now_s: float) -> dict[str, NodeState]:
        """Return what each of these nodes does."""
        return {node: self.state(node, plan_of(node), now_s) for node in sorted(nodes)}

    def counts_since(self, node: str) -> float:
        """Return when this node was first ready, or should have been: its silence since then is a gap."""
        if node in self._ready_since:
            return self._ready_since[node]
        return self._expected_since.get(node, math.inf) + STARTING_S

    def is_silent(self, agent: Agent, now_s: float) -> bool:
        """Return whether an agent has missed its reports, by the longer of two pauses: what it was told when it sent
        the last one, and what it may have been told since."""
        return now_s - agent.reported_s > MISSED * max(agent.pause_s, self._pause_s())

    def measures(self, node: str, targets: Iterable[str]) -> bool:
        """Return whether the node's agent has applied a plan with all of these targets (ids)."""
        plan = self.applied.get(node)
        if plan is None:
            return False
        known = self._targets.get(node)
        if known is None or known[0] is not plan:
            known = self._targets[node] = plan, frozenset(t.id for t in plan.targets)
        return known[1].issuperset(targets)


def _remarkable(status: AgentStatus) -> bool:
    said = (
        *(status.failing, status.safe_mode, status.spans_limited, status.untold, status.refused),
        status.loading,
        LACKING in status.variants.values(),
    )
    return any(said) or any(target.refused for target in status.targets)


def moved(before: NodePlan | None, after: NodePlan | None) -> frozenset[str]:
    """Return the addresses of pods whose client halves are measured for other targets by one plan than by the other."""
    if before is after:
        return frozenset()
    old, new = ({t.id: t.callers for t in plan.targets} if plan is not None else {} for plan in (before, after))
    moved: set[str] = set()
    for target in old.keys() | new.keys():
        if old.get(target) != new.get(target):
            moved |= {*old.get(target, ())} ^ {*new.get(target, ())}
    pods = (pod for plan in (before, after) if plan is not None for pod in plan.pods)
    return frozenset(address for pod in pods if pod.uid in moved for address in pod.addresses)
