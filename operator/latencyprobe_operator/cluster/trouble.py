"""Why an agent's pod does not run, as its status says. Pure.

Of the pods of all others nobody asks, so nothing of this is kept of them.
"""

from collections.abc import Mapping

import msgspec

from latencyprobe_operator.cluster import wire
from latencyprobe_operator.cluster.objects import Kind, Trouble

AGENT_LABELS = {"app.kubernetes.io/name": "latencyprobe", "app.kubernetes.io/component": "agent"}  # as the chart sets
TEXT = 200  # characters
_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_USUAL = {"", "ContainerCreating", "PodInitializing"}
_AGENT_POD = msgspec.json.Decoder(wire.AgentPod)


def is_agent(owner_kind: str, labels: Mapping[str, str]) -> bool:
    """Return whether a pod says that it is an agent. Anybody may say so: only in the agents' namespace it counts."""
    return owner_kind == "DaemonSet" and labels.items() >= AGENT_LABELS.items()


def trouble(data: bytes | msgspec.Raw) -> tuple[str, Trouble | None]:
    """Return the node that a DaemonSet's pod is made for, and why the pod does not run there, None while it does or
    is about to. While the cause stays the same the text does, whichever step of trying again the pod is at."""
    pod = _AGENT_POD.decode(data)
    found = _trouble(pod.status)
    return _meant_for(pod.spec), found and Trouble(found.kind, found.text[:TEXT])


def _meant_for(spec: wire.AgentSpec) -> str:
    """Return the one node of `matchFields`, by which the DaemonSet's controller tells the scheduler where."""
    affinity = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    terms = affinity.node_selector_terms if affinity else None
    fields = (field for term in terms or () for field in term.match_fields or () if field.key == "metadata.name")
    return next((field.values[0] for field in fields if field.values), "")


def _trouble(status: wire.AgentStatus) -> Trouble | None:
    if status.phase == "Failed":
        return Trouble(Kind.ENDED, status.reason or status.phase)
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return Trouble(Kind.UNSCHEDULABLE, condition.message or condition.reason)
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting.reason if container.state.waiting else ""
        if waiting in _IMAGE:
            return Trouble(Kind.IMAGE, container.image)
        ended = container.state.terminated or container.last_state.terminated
        if ended is not None and not container.ready and (ended.exit_code or waiting):
            return Trouble(Kind.CRASH, f"exit code {ended.exit_code} ({ended.reason})")
        if waiting not in _USUAL:
            return Trouble(Kind.START, waiting)
    return None
