"""The API server's JSON → trimmed objects. Pure; unknown fields are skipped without making a Python object of them.

`DECODERS` has a function for each kind, from the bytes of one object. They raise msgspec.ValidationError on what no API
server sends.
"""

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec

from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.pod_text import CONTAINERS, PORTS, Text, is_too_much

MEASURE_LABEL = "latencyprobe.dev/measure"
SUSPEND_LABEL = "latencyprobe.dev/suspend"  # value `true`, set by the cluster's admin on the operator's namespace
CLUSTER_SCOPE_LABEL = "latencyprobe.dev/cluster-scope"  # value `allowed`, set by the cluster's admin on a namespace
ATTRIBUTE_PREFIX = "resource.opentelemetry.io/"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
OTEL_VARIABLES = frozenset({"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"})


class _Wire(msgspec.Struct, rename="camel"):
    pass


class _Owner(_Wire):
    kind: str
    name: str
    controller: bool = False


class Meta(_Wire):
    """`metadata`, as far as we read it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _Env(_Wire):
    name: str
    value: str = ""


class _Port(_Wire):
    name: str | None = ""
    container_port: int = 0
    port: int | None = 0
    protocol: str | None = "TCP"


class _Container(_Wire):
    name: str
    image: str = ""
    env: list[_Env] | None = None
    ports: list[_Port] | None = None


class _PodSpec(_Wire):
    node_name: str = ""
    host_network: bool = False
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Running(_Wire):
    pass


class _ContainerState(_Wire):
    running: _Running | None = None


class _ContainerStatus(_Wire):
    name: str
    container_id: str = msgspec.field(name="containerID", default="")
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Ip(_Wire):
    ip: str


class _PodStatus(_Wire):
    phase: str = ""
    pod_ips: list[_Ip] | None = msgspec.field(name="podIPs", default=None)
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class _Pod(_Wire):
    metadata: Meta
    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Address(_Wire):
    type: str
    address: str


class _NodeStatus(_Wire):
    addresses: list[_Address] | None = None


class _Node(_Wire):
    metadata: Meta
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _ServiceSpec(_Wire):
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)
    ports: list[_Port] | None = None


class _Service(_Wire):
    metadata: Meta
    spec: _ServiceSpec


class _TargetRef(_Wire):
    kind: str = ""
    uid: str = ""


class _Endpoint(_Wire):
    addresses: list[str] | None = None
    target_ref: _TargetRef | None = None


class _Slice(_Wire):
    metadata: Meta
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _Object(_Wire):
    metadata: Meta


_intern = sys.intern  # label keys, namespaces, images and owners repeat over thousands of pods


@lru_cache(maxsize=256)
def _labels(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return labels that all replicas share, which come one after the other: at most 4 MiB are kept."""
    return {_intern(key): _intern(value) for key, value in pairs}


_shared = lru_cache(maxsize=256)(tuple)  # a tuple is its own: the equal one of an earlier pod


def pod(data: bytes | msgspec.Raw) -> Pod:
    """Decode a Pod."""
    raw = _POD.decode(data)
    meta, spec, status = raw.metadata, raw.spec, raw.status
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    ids = dict(_running_ids(status))
    known = [*(spec.containers or ()), *(spec.init_containers or ())]
    ports = [p for c in known for p in c.ports or () if p.protocol == "TCP"]
    extra = sorted(ids.keys() - {c.name for c in known})  # ephemeral containers: no spec that we read
    text, labels = Text(), meta.labels or {}
    if too_much := is_too_much(labels):
        text.omit("labels")
    for what, found, most in (("containers", [*known, *extra], CONTAINERS), ("ports", ports, PORTS)):
        if len(found) > most:
            text.omit(f"{what} above {most}")
    known, extra, ports = known[:CONTAINERS], extra[: max(CONTAINERS - len(known), 0)], ports[:PORTS]
    attributes = text.pairs(
        sorted(
            (_intern(k.removeprefix(ATTRIBUTE_PREFIX)), v)
            for k, v in (meta.annotations or {}).items()
            if k.startswith(ATTRIBUTE_PREFIX) and k != ATTRIBUTE_PREFIX
        )
    )
    return Pod(
        uid=meta.uid,
        namespace=_intern(meta.namespace),
        name=meta.name,
        node=_intern(spec.node_name),
        labels=_labels(() if too_much else tuple(labels.items())),
        addresses=tuple(ip.ip for ip in status.pod_ips or ()),
        containers=(
            *(_container(c, ids.get(c.name, ""), text) for c in known if c.name in ids or c in (spec.containers or ())),
            *(Container(name, ids[name]) for name in extra),
        ),
        ports=_shared(tuple((_intern(p.name), p.container_port) for p in ports if p.name)),
        numbers=_shared(tuple(sorted({p.container_port for p in ports}))),
        attributes=_shared(attributes),
        owner_kind=_intern(owner.kind) if owner else "",
        owner_name=_intern(owner.name) if owner else "",
        host_network=spec.host_network,
        terminating=meta.deletion_timestamp is not None,
        terminal=status.phase in ("Succeeded", "Failed"),
        unselectable=too_much,
        left_out=text.left_out,
    )


def _container(raw: _Container, id_: str, text: Text) -> Container:
    of = f"container {raw.name}"
    return Container(_intern(raw.name), id_, _intern(text.image(raw.image, of)), text.pairs(_otel(raw), of))


def _running_ids(status: _PodStatus) -> Iterator[tuple[str, str]]:
    for statuses in (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses):
        for container in statuses or ():
            if container.state.running is not None and container.container_id:
                yield container.name, container.container_id.rpartition("/")[2]  # containerd://<id>


def _otel(container: _Container) -> Iterator[tuple[str, str]]:
    for variable in container.env or ():
        if variable.name in OTEL_VARIABLES and variable.value and not variable.value.startswith("$("):
            yield _intern(variable.name), _intern(variable.value)


def node(data: bytes | msgspec.Raw) -> Node:
    """Decode a Node."""
    raw = _NODE.decode(data)
    return Node(
        uid=raw.metadata.uid,
        name=_intern(raw.metadata.name),
        addresses=tuple(a.address for a in raw.status.addresses or () if a.type in ("InternalIP", "ExternalIP")),
        measure=(raw.metadata.labels or {}).get(MEASURE_LABEL) == "true",
    )


def service(data: bytes | msgspec.Raw) -> Service:
    """Decode a Service."""
    raw = _SERVICE.decode(data)
    return Service(
        namespace=_intern(raw.metadata.namespace),
        name=_intern(raw.metadata.name),
        addresses=tuple(a for a in raw.spec.cluster_ips or () if a and a != "None"),
        ports=_ports(raw.spec.ports),
    )


def slice_(data: bytes | msgspec.Raw) -> Slice:
    """Decode an EndpointSlice: only entries that refer to a pod."""
    raw = _SLICE.decode(data)
    return Slice(
        namespace=_intern(raw.metadata.namespace),
        name=raw.metadata.name,
        service=_intern((raw.metadata.labels or {}).get(SERVICE_NAME_LABEL, "")),
        ports=_ports(raw.ports),
        endpoints=tuple(
            SliceEndpoint(e.target_ref.uid, tuple(e.addresses or ()))
            for e in raw.endpoints or ()
            if e.target_ref is not None and e.target_ref.kind == "Pod" and e.target_ref.uid
        ),
    )


def _ports(ports: list[_Port] | None) -> tuple[tuple[str, int], ...]:
    return tuple((_intern(p.name or ""), p.port) for p in ports or () if p.port and (p.protocol or "TCP") == "TCP")


def namespace(data: bytes | msgspec.Raw) -> Namespace:
    """Decode a Namespace."""
    meta = _OBJECT.decode(data).metadata
    return Namespace(
        name=_intern(meta.name),
        cluster_scope=(meta.labels or {}).get(CLUSTER_SCOPE_LABEL) == "allowed",
        suspend=(meta.labels or {}).get(SUSPEND_LABEL) == "true",
        terminating=meta.deletion_timestamp is not None,
    )


def metadata(data: bytes | msgspec.Raw) -> Meta:
    """Decode only `metadata`, of any object."""
    return _OBJECT.decode(data).metadata


_POD = msgspec.json.Decoder(_Pod)
_NODE = msgspec.json.Decoder(_Node)
_SERVICE = msgspec.json.Decoder(_Service)
_SLICE = msgspec.json.Decoder(_Slice)
_OBJECT = msgspec.json.Decoder(_Object)

Trimmed = Pod | Node | Service | Slice | Namespace
DECODERS: dict[str, Callable[[bytes | msgspec.Raw], Trimmed]] = {
    "pods": pod,
    "nodes": node,
    "services": service,
    "endpointslices": slice_,
    "namespaces": namespace,
}
