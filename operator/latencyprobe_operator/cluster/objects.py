"""The few fields of Kubernetes objects that planning needs, as flat, frozen structs: at most 1.4 kB for a usual pod."""

import enum
from typing import Any

import msgspec


class _Trimmed(
    msgspec.Struct, frozen=True, gc=False
):  # gc=False: they hold no cycles, and 150,000 of them cost no scans
    pass


class Container(_Trimmed, frozen=True):
    """A container of a pod. `id`: 64 hex digits while it runs, else empty. `env`: its literal `OTEL_*` values."""

    name: str
    id: str = ""
    image: str = ""
    env: tuple[tuple[str, str], ...] = ()


class Kind(enum.StrEnum):
    """What keeps an agent's pod from running."""

    ENDED = "ended"
    UNSCHEDULABLE = "unschedulable"
    IMAGE = "image"
    CRASH = "crash"
    START = "start"


class Trouble(_Trimmed, frozen=True):
    """Why an agent's pod does not run. `text`: the cluster's word for it."""

    kind: Kind
    text: str


class Pod(_Trimmed, frozen=True):
    """A pod. `ports`: named TCP ports of its containers and sidecars; `numbers`: all TCP ones that these declare.
    `attributes`: annotations `resource.opentelemetry.io/*` without the prefix. `terminal`: it ended (its address may
    belong to another by now). `terminating`: deletion was asked for; it may still answer. `left_out`: what of its text
    is too much to be kept; `unselectable`: that is so of its labels, so nobody can tell which selectors mean it. Of an
    agent's pod alone: `meant_for`, the node that it is made for, and `trouble`, why it does not run there."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    labels: dict[str, str] = {}
    addresses: tuple[str, ...] = ()
    containers: tuple[Container, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    numbers: tuple[int, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    owner_kind: str = ""
    owner_name: str = ""
    host_network: bool = False
    terminating: bool = False
    terminal: bool = False
    left_out: tuple[str, ...] = ()
    unselectable: bool = False
    meant_for: str = ""
    trouble: Trouble | None = None


class Taint(_Trimmed, frozen=True):
    """A taint that keeps pods off a node (`effect` NoSchedule or NoExecute)."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return it as kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Node(_Trimmed, frozen=True):
    """A node. `measure`: it carries the label that lets the agent run there. `unready`: why its kubelet runs no pods,
    empty while it does; `system`: its operating system, empty where it is not said."""

    uid: str
    name: str
    addresses: tuple[str, ...] = ()
    measure: bool = False
    taints: tuple[Taint, ...] = ()
    unready: str = ""
    system: str = ""


class Service(_Trimmed, frozen=True):
    """A Service: addresses that the API server allots (never externalIPs, which their author may choose freely) and
    ports by name. `balancers`: addresses that a load balancer's controller gave it, which Services may share;
    `left_out`: how many of its ports are not kept."""

    namespace: str
    name: str
    addresses: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    balancers: tuple[str, ...] = ()
    left_out: int = 0


class SliceEndpoint(_Trimmed, frozen=True):
    """An EndpointSlice entry that refers to a pod."""

    pod_uid: str
    addresses: tuple[str, ...]


class Slice(_Trimmed, frozen=True):
    """An EndpointSlice. `ports`: name → number in the pods."""

    namespace: str
    name: str
    service: str
    ports: tuple[tuple[str, int], ...] = ()
    endpoints: tuple[SliceEndpoint, ...] = ()


class Namespace(_Trimmed, frozen=True):
    """A namespace. `cluster_scope`: its admin lets LatencyProbes name callers of the whole cluster. `suspend`: on the
    operator's own, all measuring shall stop."""

    name: str
    cluster_scope: bool = False
    suspend: bool = False
    terminating: bool = False


Key = tuple[str, str]  # namespace (empty for cluster-scoped objects), name


def key_of(item: Any) -> Key:
    """Return the key of any object above."""
    return (getattr(item, "namespace", ""), item.name)
