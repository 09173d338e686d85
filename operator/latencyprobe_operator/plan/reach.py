"""One target of a LatencyProbe, wherever it runs: its pods by node, and what callers dial to reach them. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from latencyprobe import plan, planning, spec
from latencyprobe.plan import Role
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.replicas import Group, replicas


class TargetCount(msgspec.Struct, frozen=True):
    """Figures of one target for the status. `portless`: pods that match but have none of the named ports."""

    name: str
    pods: int
    nodes: frozenset[str]
    portless: int = 0


class TooMuch(Exception):  # noqa: N818 - the LatencyProbe's, no fault of ours
    """A target reaches more than there is room for, whatever else there is."""


class Reach(msgspec.Struct, frozen=True):
    """`whole`: the target as it is on every node. By node: `pods`, `named` (the same, as a plan has them), `replicas`.
    `endpoints`: what callers dial; `called`: there is something to call; `entries`: how many there are in all lists."""

    whole: plan.Target
    pods: dict[str, tuple[Pod, ...]]
    named: dict[str, tuple[plan.TargetPod, ...]]
    replicas: dict[str, tuple[Group, ...]]
    endpoints: tuple[plan.Endpoint, ...]
    called: bool
    count: TargetCount
    entries: int

    def on(self, node: str, callers: tuple[str, ...]) -> plan.Target | None:
        """Return the target as it is on a node, None where it is not. `callers`: uids of pods there that may call."""
        callers = callers if self.called else ()
        pods = self.named.get(node, ())
        if not pods and not callers:
            return None
        return msgspec.structs.replace(
            self.whole,
            pods=pods,
            callers=callers,
            endpoints=self.endpoints if callers else (),
            replicas=tuple(group.planned(known=bool(callers)) for group in self.replicas.get(node, ())),
        )

    def differs_on(self, other: "Reach") -> frozenset[str] | None:
        """Return the nodes without callers on which this is another one than `other`; None: on all nodes."""
        if (self.whole, self.endpoints, self.called) != (other.whole, other.endpoints, other.called):
            return None
        hosts = {*self.pods, *other.pods, *self.replicas, *other.replicas}
        return frozenset(
            node
            for node in hosts
            if self.pods.get(node) != other.pods.get(node)
            or self.named.get(node) != other.named.get(node)
            or self.replicas.get(node) != other.replicas.get(node)
        )


def reach(
    probe: spec.LatencyProbe,
    target: spec.TargetSpec,
    own: list[Pod],
    state: ClusterState,
    before: Reach | None,
    *,
    most: int,
) -> Reach:
    """Work out one target. `own`: the running pods of its namespace by name; `before`: what it was, of which equal
    endpoints are taken, so that all nodes share them; `most`: ways to a pod. Raises TooMuch for more of these."""
    matching = [p for p in own if spec.selector_matches(target.pod_selector, p.labels)]
    ports = {p.uid: _ports(target, p) for p in matching}
    # `()` means every port: a pod without the named port must not fall into that.
    selected = [p for p in matching if ports[p.uid] or not target.ports]
    pods: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in selected:
        pods[pod.node].append(pod)
    called = target.role is Role.SERVER and bool(selected)
    ways = _endpoints(selected, ports, probe.namespace, state) if called or not target.peers else ()
    reached = list(islice(ways, most + 1))
    endpoints = tuple(sorted({endpoint for _, endpoint in reached}, key=msgspec.structs.astuple))
    if before is not None and before.endpoints == endpoints:
        endpoints = before.endpoints
    alike = {} if target.peers else replicas(reached)
    lists = {id(group.endpoints): len(group.endpoints) for of_node in alike.values() for group in of_node}  # shared
    entries = sum(1 + len(ports[pod.uid]) for pod in selected) + len(endpoints) + sum(lists.values())
    if max(len(reached), entries) > most:
        raise TooMuch(f"target {target.name} has more than {most:,} pods, ports and addresses by which it is reached")
    return Reach(
        whole=planning.target(probe, target),
        pods={node: tuple(some) for node, some in pods.items()},
        named={
            node: tuple(plan.TargetPod(uid=pod.uid, ports=ports[pod.uid]) for pod in some)
            for node, some in pods.items()
        },
        replicas=alike,
        endpoints=endpoints,
        called=called,
        count=TargetCount(target.name, len(selected), frozenset(pods), len(matching) - len(selected)),
        entries=entries,
    )


def _ports(target: spec.TargetSpec, pod: Pod) -> tuple[int, ...]:
    named = dict(pod.ports)
    numbers = (port if isinstance(port, int) else named.get(port, 0) for port in target.ports)
    return tuple(sorted({n for n in numbers if n}))


def _endpoints(
    pods: Sequence[Pod], ports: dict[str, tuple[int, ...]], namespace: str, state: ClusterState
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
