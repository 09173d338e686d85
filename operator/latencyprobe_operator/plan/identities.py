"""Address → owner, for `POST /v1/identities`, and the nodes behind it, for remote join. Pure.

Exact or unknown: an address that two pods claim, or that a node shares with its host-network pods, names no pod; one
that Services share names no Service, one that two nodes claim no node.
"""

from collections.abc import Callable

from latencyprobe.plan import Identity
from latencyprobe_operator.cluster.objects import Pod, Service
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan import resources

Owner = Pod | Service | str | None  # a node by its name


def owner_of(address: str, state: ClusterState) -> Owner:
    """Return who has an address; nothing where that is not known for sure."""
    return _only(state, address) or state.service_at(address) or state.node_at(address) or None


def identity(address: str, owner: Owner, measured: Callable[[str, str], tuple[str, ...]] = lambda *_: ()) -> Identity:
    """Return who has an address as agents are told; empty fields where nobody is known. `measured`: the targets for
    which a pod's client half is measured, by its node and uid."""
    if isinstance(owner, Pod):
        return Identity(
            address=address,
            namespace=owner.namespace,
            pod=owner.name,
            uid=owner.uid,
            workload=resources.workload(owner),
            service=resources.service_name(owner),
            node=owner.node,
            measured=measured(owner.node, owner.uid),
        )
    if isinstance(owner, Service):
        return Identity(address=address, namespace=owner.namespace, service=owner.name)
    return Identity(address=address, node=owner or "")


def nodes_at(address: str, state: ClusterState) -> frozenset[str]:
    """Return the nodes that may answer at an address: for a Service's address, those of its pods."""
    service = state.service_at(address)
    if service is None:
        addresses = {address}
    else:
        addresses = {a for part in state.slices_of(service) for endpoint in part.endpoints for a in endpoint.addresses}
    pods = {pod.node for a in addresses for pod in state.pods_at(a)}
    return frozenset((pods | {state.node_at(a) for a in addresses}) - {""})


def node_of_pod(state: ClusterState, namespace: str, name: str, uid: str) -> str:
    """Return the node of a pod; an empty name where it is not known, or another pod has its name now."""
    pod = state.pod((namespace, name))
    return pod.node if pod is not None and pod.uid == uid else ""


def is_pod_of(state: ClusterState, namespace: str, address: str) -> bool:
    """Return whether a pod of this namespace has the address."""
    return any(pod.namespace == namespace for pod in state.pods_at(address))


def agents_at(state: ClusterState, namespace: str, address: str) -> frozenset[str]:
    """Return the nodes whose agents may call from an address: it is their pods' own, of this namespace, or the node's,
    behind which a network may hide them."""
    pods = {pod.node for pod in state.pods_at(address) if pod.namespace == namespace}
    return frozenset((pods | {state.node_at(address)}) - {""})


def _only(state: ClusterState, address: str) -> Pod | None:
    """Return the one pod at an address; a terminating one counts only while no other has it."""
    pods = list(state.pods_at(address))
    alive = [p for p in pods if not p.terminating] or pods
    return alive[0] if len(alive) == 1 else None
