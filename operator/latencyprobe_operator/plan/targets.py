"""One LatencyProbe against the cluster's state: which pods, callers, endpoints and objectives it means on which node.

Pure. Pods of other namespaces enter only as callers, and only when the namespace is allowed to name callers of the
whole cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from latencyprobe import plan, planning, spec
from latencyprobe.plan import Role
from latencyprobe_operator.cluster.decoding import CLUSTER_SCOPE_LABEL
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.replicas import replicas


class TargetCount(msgspec.Struct, frozen=True):
    """Figures of one target for the status. `portless`: pods that match but have none of the named ports."""

    name: str
    pods: int
    nodes: frozenset[str]
    portless: int = 0


class Resolved(msgspec.Struct, frozen=True):
    """What one LatencyProbe means now.

    `targets`, `objectives`, `pods`: by node. `nodes`: those that must measure. `refusal`: reason and message when the
    cluster does not allow what the spec asks. `unselectable`: pods of the namespace with more labels than are kept.
    """

    probe: spec.LatencyProbe
    targets: dict[str, tuple[plan.Target, ...]] = {}
    objectives: dict[str, tuple[plan.PlannedObjective, ...]] = {}
    pods: dict[str, tuple[Pod, ...]] = {}
    nodes: frozenset[str] = frozenset()
    counts: tuple[TargetCount, ...] = ()
    refusal: tuple[str, str] | None = None
    unselectable: tuple[str, ...] = ()


def resolve(probe: spec.LatencyProbe, state: ClusterState) -> Resolved:
    """Work out one LatencyProbe. A suspended or refused one means nothing on any node."""
    clients = probe.spec.clients
    if probe.spec.suspend:
        return Resolved(probe)
    if clients.scope == "Cluster":
        namespace = state.namespace(probe.namespace)
        if namespace is None or not namespace.cluster_scope:
            remedy = f"label namespace {probe.namespace} with {CLUSTER_SCOPE_LABEL}=allowed, or use scope Namespace"
            return Resolved(probe, refusal=("ClusterScopeNotAllowed", f"spec.clients.scope Cluster: {remedy}"))
    own = sorted((p for p in state.pods(probe.namespace) if _runs(p)), key=lambda p: p.name)
    everyone: Iterable[Pod] = {"None": (), "Namespace": own, "Cluster": filter(_runs, state.pods())}[clients.scope]
    has_server = any(t.role is Role.SERVER for t in probe.spec.targets)
    callers = [p for p in everyone if has_server and spec.selector_matches(clients.pod_selector, p.labels)]
    callers.sort(key=lambda p: (p.namespace, p.name))
    by_node: defaultdict[str, list[plan.Target]] = defaultdict(list)
    counts = []
    for target in probe.spec.targets:
        parts, count = _resolve_target(probe, target, own, callers, state)
        counts.append(count)
        for node, part in parts.items():
            by_node[node].append(part)
    needed = {
        node: {u for t in parts for u in (*(p.uid for p in t.pods), *t.callers)} for node, parts in by_node.items()
    }
    known = {p.uid: p for p in (*own, *callers)}
    objectives = planning.objectives(probe)
    nodes = set(state.nodes()) if clients.scope == "Cluster" and has_server else set(by_node)
    return Resolved(
        probe,
        targets={node: tuple(parts) for node, parts in by_node.items()},
        objectives={node: _here(objectives, parts) for node, parts in by_node.items()},
        pods={node: tuple(known[uid] for uid in sorted(uids)) for node, uids in needed.items()},
        nodes=frozenset(nodes & state.nodes().keys()),
        counts=tuple(counts),
        unselectable=tuple(sorted(p.name for p in state.pods(probe.namespace) if p.unselectable)),
    )


def _runs(pod: Pod) -> bool:
    return pod.node != "" and not pod.terminal and not pod.unselectable


def _resolve_target(
    probe: spec.LatencyProbe, target: spec.TargetSpec, own: list[Pod], callers: list[Pod], state: ClusterState
) -> tuple[dict[str, plan.Target], TargetCount]:
    """Return the target's part of each node, and its figures."""
    matching = [p for p in own if spec.selector_matches(target.pod_selector, p.labels)]
    ports = {p.uid: _ports(target, p) for p in matching}
    # `()` means every port: a pod without the named port must not fall into that.
    selected = [p for p in matching if ports[p.uid] or not target.ports]
    whole = planning.target(probe, target)
    pods_on: defaultdict[str, list[plan.TargetPod]] = defaultdict(list)
    for pod in selected:
        pods_on[pod.node].append(plan.TargetPod(uid=pod.uid, ports=ports[pod.uid]))
    callers_on: defaultdict[str, list[str]] = defaultdict(list)
    if target.role is Role.SERVER and selected:
        for pod in callers:
            callers_on[pod.node].append(pod.uid)
    wanted = callers_on or not target.peers
    reached = list(_endpoints(selected, ports, probe.namespace, state)) if wanted else []
    endpoints = tuple(sorted({endpoint for _, endpoint in reached}, key=msgspec.structs.astuple))
    replicas_on = {} if target.peers else replicas(reached, callers_on.keys())
    parts = {
        node: msgspec.structs.replace(
            whole,
            pods=tuple(pods_on.get(node, ())),
            callers=tuple(callers_on.get(node, ())),
            endpoints=endpoints if node in callers_on else (),
            replicas=replicas_on.get(node, ()),
        )
        for node in sorted({*pods_on, *callers_on})
    }
    count = TargetCount(target.name, len(selected), frozenset(pods_on), len(matching) - len(selected))
    return parts, count


def _ports(target: spec.TargetSpec, pod: Pod) -> tuple[int, ...]:
    named = dict(pod.ports)
    numbers = (port if isinstance(port, int) else named.get(port, 0) for port in target.ports)
    return tuple(sorted({n for n in numbers if n}))


def _endpoints(
    pods: list[Pod], ports: dict[str, tuple[int, ...]], namespace: str, state: ClusterState
) -> Iterator[tuple[Pod, plan.Endpoint]]:
    """Yield what callers dial, and the pod that they may reach by it: the pods' own addresses, and Services whose
    EndpointSlices name one of the pods by uid *and* address (a hand-made slice can name a pod of ours beside an address
    of somebody else)."""
    for pod in pods:
        for port in _dialled(pod, ports[pod.uid]):
            yield from ((pod, plan.Endpoint(address=address, port=port)) for address in pod.addresses)
    by_uid = {p.uid: p for p in pods}
    for part in state.slices(namespace):
        service = state.services(namespace).get(part.service)
        if service is None:
            continue
        number_of = dict(service.ports)
        for endpoint in part.endpoints:
            named = by_uid.get(endpoint.pod_uid)
            if named is None or not set(endpoint.addresses) <= set(named.addresses):
                continue
            dialled = _dialled(named, ports[named.uid])
            for name, number in part.ports:
                if (number in dialled or 0 in dialled) and name in number_of:
                    for a in service.addresses:
                        yield named, plan.Endpoint(address=a, port=number_of[name], service=service.name)


def _dialled(pod: Pod, ports: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ports by which callers reach a pod, 0 for all.

    A host-network pod shares its node's address with the kubelet and with other tenants' pods: only ports that it
    declares count, which the scheduler gives to one pod of a node.
    """
    if pod.host_network:
        return tuple(n for n in pod.numbers if not ports or n in ports)
    return ports or (0,)


def _here(objectives: tuple[plan.PlannedObjective, ...], parts: list[plan.Target]) -> tuple[plan.PlannedObjective, ...]:
    """Return the objectives that a node can count: those whose perspective it hosts."""
    by_id = {t.id: t for t in parts}

    def counted(objective: plan.PlannedObjective) -> bool:
        target = by_id.get(objective.target)
        if target is None:
            return False
        return bool(target.pods if objective.perspective is target.role else target.callers)

    return tuple(o for o in objectives if counted(o))
