"""One LatencyProbe against the cluster's state: which pods, callers, endpoints and objectives it means on which node.

Pure. Pods of other namespaces enter only as callers, and only when the namespace is allowed to name callers of the
whole cluster. `look` looks again only at nodes that a change may concern; a `yield` is where other work may go on.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Set
from operator import attrgetter
from typing import TypeVar

import msgspec

from latencyprobe import plan, planning, spec
from latencyprobe.plan import Role
from latencyprobe_operator.cluster.decoding import CLUSTER_SCOPE_LABEL
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.plan.reach import Reach, TargetCount, TooMuch, reach
from latencyprobe_operator.plan.room import KEPT_TARGET, MOST, REMEDY, WHOLE, Most, entries_of

T = TypeVar("T")
NO_ROOM = "TargetRefused"  # reason of the status: as where an agent has no room for a target


class Part(msgspec.Struct, frozen=True):
    """What a LatencyProbe means on one node. `ids`: of its targets; `pods`: its targets and callers there, by uid, the
    same object until they change; `callers`: those alone, None where there is nothing to call; `wordy`: those pods of
    its namespace of whose text something is left out."""

    targets: tuple[plan.Target, ...]
    ids: tuple[str, ...]
    objectives: tuple[plan.PlannedObjective, ...]
    pods: tuple[Pod, ...]
    callers: tuple[Pod, ...] | None
    wordy: tuple[Pod, ...]

    @property
    def entries(self) -> int:
        """How much room it takes in a plan."""
        return entries_of(self.targets, len(self.objectives))


class Resolved(msgspec.Struct, frozen=True):
    """What one LatencyProbe means now.

    `parts`: by node. `nodes`: those that must measure. `objectives`: the same objects until it changes. `refusal`:
    reason and message when the cluster does not allow what the spec asks. Of the namespace: `unselectable`, pods with
    more labels than are kept; `cut`, Services with more ports; `left_out`: how many objects there is no room for.
    """

    probe: spec.LatencyProbe
    parts: dict[str, Part] = {}
    nodes: frozenset[str] = frozenset()
    reaches: tuple[Reach, ...] = ()
    objectives: tuple[plan.PlannedObjective, ...] = ()
    refusal: tuple[str, str] | None = None
    unselectable: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def counts(self) -> tuple[TargetCount, ...]:
        """Figures of its targets for the status."""
        return tuple(reach.count for reach in self.reaches)

    @property
    def prefix(self) -> str:
        """What the ids of its targets begin with."""
        return f"{self.probe.namespace}/{self.probe.name}/"

    def targets_on(self, node: str) -> tuple[str, ...]:
        """Return which targets (ids) a node must measure."""
        part = self.parts.get(node)
        return part.ids if part is not None else ()

    @property
    def calls_everywhere(self) -> bool:
        """Whether callers may be on any node."""
        return self.probe.spec.clients.scope == "Cluster"

    @property
    def everywhere(self) -> bool:
        """Whether every node must measure: anybody may call."""
        return self.calls_everywhere and any(r.whole.role is Role.SERVER for r in self.reaches)

    def on_nodes(self, known: frozenset[str]) -> "Resolved":
        """Return it with the nodes that must measure. `known`: all that there are."""
        return msgspec.structs.replace(self, nodes=known if self.everywhere else known & self.parts.keys())


class Look(msgspec.Struct, frozen=True):
    """What became of a LatencyProbe. `resolved`: all but its parts; `parts`: those that changed, None where it means
    nothing any more."""

    resolved: Resolved
    parts: dict[str, Part | None]

    def needs(self, before: Resolved | None) -> dict[str, int]:
        """Return for how much room it asks in the plans of the nodes where it changed, and in all. `before`: what it
        was."""
        found = {node: part.entries if part is not None else 0 for node, part in self.parts.items()}
        parts = before.parts if before is not None else {}
        nodes = len(parts) - sum(node in parts for node in self.parts)  # where nothing changed
        nodes += sum(part is not None for part in self.parts.values())
        reaches = self.resolved.reaches
        found[WHOLE] = sum(one.entries for one in reaches) + KEPT_TARGET * len(reaches) * nodes
        return found


def refused(probe: spec.LatencyProbe, before: Resolved | None, why: str = "") -> Look:
    """Return a LatencyProbe that means nothing on any node, as there is no room for it. `before`: what it was, which
    says why if nobody else does yet."""
    refusal = (NO_ROOM, why) if why or before is None or before.refusal is None else before.refusal
    return Look(Resolved(probe, refusal=refusal), dict.fromkeys(before.parts if before is not None else ()))


def resolve(probe: spec.LatencyProbe, state: ClusterState) -> Resolved:
    """Work out one LatencyProbe from scratch."""
    found = finished(look(probe, state, None, Changes()))
    parts = {node: part for node, part in found.parts.items() if part is not None}
    return msgspec.structs.replace(found.resolved, parts=parts).on_nodes(frozenset(state.nodes()))


def finished(work: Generator[None, None, T]) -> T:
    """Do all of some work at once; returns what it returned."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def look(
    probe: spec.LatencyProbe, state: ClusterState, before: Resolved | None, changes: Changes, most: Most = MOST
) -> Generator[None, None, Look]:
    """Work out one LatencyProbe. A suspended or refused one means nothing on any node. `before`: what it was;
    `changes`: those of the cluster since then; `most`: what there is room for."""
    known = before if before is not None and before.probe == probe else None
    if known is not None and probe.namespace not in changes.namespaces:
        header, own = known, None  # pods of other namespaces came or went
    else:
        own = sorted((p for p in state.pods(probe.namespace) if _runs(p)), key=lambda p: p.name)
        header = yield from _header(probe, own, state, known, most)
    places = _Places(header, state, own)
    few = _differ(header, known) if known is not None else None
    nodes: Set[str]
    if few is not None:
        nodes = few | changes.pods_on
    else:
        nodes = places.all() | (before.parts.keys() if before is not None else set())
    objectives = (known.objectives if known is not None else ()) or planning.objectives(probe)
    header = msgspec.structs.replace(header, objectives=objectives)
    parts: dict[str, Part | None] = {}
    for node in nodes:
        old = before.parts.get(node) if before is not None else None
        new = places.part(node, objectives, old, known is not None and node not in changes.pods_on)
        if new != old:
            parts[node] = new
        yield
    return Look(header, parts)


def _header(
    probe: spec.LatencyProbe, own: list[Pod], state: ClusterState, known: Resolved | None, most: Most
) -> Generator[None, None, Resolved]:
    """Return what does not depend on callers. `known`: what it was, if the LatencyProbe is the same."""
    if probe.spec.suspend:
        return Resolved(probe)
    if probe.spec.clients.scope == "Cluster":
        namespace = state.namespace(probe.namespace)
        if namespace is None or not namespace.cluster_scope:
            remedy = f"label namespace {probe.namespace} with {CLUSTER_SCOPE_LABEL}=allowed, or use scope Namespace"
            return Resolved(probe, refusal=("ClusterScopeNotAllowed", f"spec.clients.scope Cluster: {remedy}"))
    before: Iterable[Reach | None] = known.reaches if known is not None and known.reaches else [None] * 32
    reaches: list[Reach] = []
    left = most.one
    for target, old in zip(probe.spec.targets, before, strict=False):
        try:
            reaches.append(reach(probe, target, own, state, old, most=left))
        except TooMuch as error:
            return Resolved(
                probe, refusal=(NO_ROOM, f"{error}, of {most.one:,} that one LatencyProbe may have: {REMEDY}")
            )
        left -= reaches[-1].entries
        yield
    return Resolved(
        probe,
        reaches=tuple(reaches),
        unselectable=tuple(sorted(p.name for p in state.pods(probe.namespace) if p.unselectable)),
        cut=tuple(sorted(s.name for s in state.services(probe.namespace).values() if s.left_out)),
        left_out=len(state.room.left_out.get(probe.namespace, ())),
    )


def _differ(new: Resolved, old: Resolved) -> frozenset[str] | None:
    """Return the nodes on which targets differ, whatever pods changed there; None: all nodes."""
    if len(new.reaches) != len(old.reaches):  # refused, or not any more
        return None
    found: frozenset[str] = frozenset()
    for now, before in zip(new.reaches, old.reaches, strict=True):
        nodes = now.differs_on(before)
        if nodes is None:
            return None
        found |= nodes
    return found


class _Places:
    """A LatencyProbe's parts, node by node. `own`: the running pods of its namespace, None if nobody looked."""

    def __init__(self, header: Resolved, state: ClusterState, own: list[Pod] | None) -> None:
        self._header = header
        self._state = state
        self._clients = header.probe.spec.clients
        self._ids: dict[tuple[str, ...], tuple[str, ...]] = {}  # one for all nodes
        self._own_on: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in own or ():
            self._own_on[pod.node].append(pod)

    def all(self) -> set[str]:
        """Return the nodes on which the LatencyProbe may mean something."""
        if not self._header.reaches:
            return set()
        return {*self._state.nodes_with_pods()} if self._clients.scope == "Cluster" else {*self._own_on}

    def part(
        self, node: str, objectives: tuple[plan.PlannedObjective, ...], before: Part | None, same_pods: bool
    ) -> Part | None:
        """Return what it means on a node, None where it means nothing. `before`: what it meant there; `same_pods`: the
        node's pods are those of then."""
        reaches = self._header.reaches
        callers = before.callers if before is not None and same_pods else None
        if not any(reach.called for reach in reaches):
            callers = None
        elif callers is None:
            callers = self._callers(node)
        uids = tuple(pod.uid for pod in callers or ())
        targets = tuple(target for reach in reaches if (target := reach.on(node, uids)) is not None)
        if not targets:
            return None
        by_uid = {pod.uid: pod for reach in reaches for pod in reach.pods.get(node, ())}
        by_uid |= {pod.uid: pod for pod in callers or ()}
        pods = tuple(by_uid[uid] for uid in sorted(by_uid))
        if before is not None and before.pods == pods:
            pods = before.pods
        if pods == callers:  # on most nodes, and one list takes half of the memory
            callers = pods
        ids = tuple([target.id for target in targets])
        wordy = tuple([pod for pod in pods if pod.left_out and pod.namespace == self._header.probe.namespace])
        return Part(targets, self._ids.setdefault(ids, ids), _here(objectives, targets), pods, callers, wordy)

    def _callers(self, node: str) -> tuple[Pod, ...]:
        """Return the pods of a node whose client halves are wanted."""
        scope, selector = self._clients.scope, self._clients.pod_selector
        if scope == "None":
            return ()
        pods = filter(_runs, self._state.pods_on(node)) if scope == "Cluster" else self._own_on.get(node, ())
        found = [pod for pod in pods if spec.selector_matches(selector, pod.labels)]
        return tuple(sorted(found, key=attrgetter("uid")))


def _runs(pod: Pod) -> bool:
    return pod.node != "" and not pod.terminal and not pod.unselectable


def _here(
    objectives: tuple[plan.PlannedObjective, ...], targets: Iterable[plan.Target]
) -> tuple[plan.PlannedObjective, ...]:
    """Return the objectives that a node can count: those whose perspective it hosts."""
    by_id = {t.id: t for t in targets}

    def counted(objective: plan.PlannedObjective) -> bool:
        target = by_id.get(objective.target)
        if target is None:
            return False
        return bool(target.pods if objective.perspective is target.role else target.callers)

    found = tuple(o for o in objectives if counted(o))
    return objectives if len(found) == len(objectives) else found  # one for all nodes
