"""Address → owner, for `POST /v1/identities`, and the nodes behind it, for remote join. Pure.

Exact or unknown: an address that two pods claim, or that a node shares with its host-network pods, names no pod; one
that Services share names no Service, one that two nodes claim no node.
"""

from latencyprobe.plan import Identity
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan import resources
from latencyprobe_operator.plan.agents import Agents


def identify(address: str, state: ClusterState, agents: Agents) -> Identity:
    """Return the owner of an address; empty fields where it is not known for sure."""
    pod = _only(state, address)
    if pod is not None:
        return Identity(
            address=address,
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            workload=resources.workload(pod),
            service=resources.service_name(pod),
            node=pod.node,
            measured=agents.applied_callers(pod.node, pod.uid),
        )
    service = state.service_at(address)
    if service is not None:
        return Identity(address=address, namespace=service.namespace, service=service.name)
    return Identity(address=address, node=state.node_at(address))


def nodes_at(address: str, state: ClusterState) -> frozenset[str]:
    """Return the nodes that may answer at an address: for a Service's address, those of its pods."""
    service = state.service_at(address)
    if service is None:
        addresses = {address}
    else:
        slices = (part for part in state.slices(service.namespace) if part.service == service.name)
        addresses = {a for part in slices for endpoint in part.endpoints for a in endpoint.addresses}
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
