"""The API server's JSON → trimmed objects. Pure; unknown fields are skipped without making a Python object of them.

`DECODERS` has a function for each kind, from the bytes of one object. They raise msgspec.ValidationError on what no API
server sends.
"""

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec

from latencyprobe_operator.cluster import wire
from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint, Taint
from latencyprobe_operator.cluster.pod_text import CONTAINERS, PORTS, Text, is_too_much
from latencyprobe_operator.cluster.trouble import is_agent, trouble

MEASURE_LABEL = "latencyprobe.dev/measure"
SUSPEND_LABEL = "latencyprobe.dev/suspend"  # value `true`, set by the cluster's admin on the operator's namespace
CLUSTER_SCOPE_LABEL = "latencyprobe.dev/cluster-scope"  # value `allowed`, set by the cluster's admin on a namespace
ATTRIBUTE_PREFIX = "resource.opentelemetry.io/"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
SYSTEM_LABEL = "kubernetes.io/os"
OTEL_VARIABLES = frozenset({"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"})

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
    meant_for, why = trouble(data) if owner is not None and is_agent(owner.kind, labels) else ("", None)
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
        meant_for=_intern(meant_for),
        trouble=why,
    )


def _container(raw: wire.Container, id_: str, text: Text) -> Container:
    of = f"container {raw.name}"
    return Container(_intern(raw.name), id_, _intern(text.image(raw.image, of)), text.pairs(_otel(raw), of))


def _running_ids(status: wire.PodStatus) -> Iterator[tuple[str, str]]:
    for statuses in (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses):
        for container in statuses or ():
            if container.state.running is not None and container.container_id:
                yield container.name, container.container_id.rpartition("/")[2]  # containerd://<id>


def _otel(container: wire.Container) -> Iterator[tuple[str, str]]:
    for variable in container.env or ():
        if variable.name in OTEL_VARIABLES and variable.value and not variable.value.startswith("$("):
            yield _intern(variable.name), _intern(variable.value)


def node(data: bytes | msgspec.Raw) -> Node:
    """Decode a Node."""
    raw = _NODE.decode(data)
    labels = raw.metadata.labels or {}
    ready = next((c for c in raw.status.conditions or () if c.type == "Ready"), None)
    return Node(
        uid=raw.metadata.uid,
        name=_intern(raw.metadata.name),
        addresses=tuple(a.address for a in raw.status.addresses or () if a.type in ("InternalIP", "ExternalIP")),
        measure=labels.get(MEASURE_LABEL) == "true",
        taints=tuple(
            Taint(_intern(t.key), _intern(t.value), _intern(t.effect))
            for t in raw.spec.taints or ()
            if t.effect in ("NoSchedule", "NoExecute")
        ),
        unready=_intern(ready.reason or "NotReady") if ready is not None and ready.status != "True" else "",
        system=_intern(labels.get(SYSTEM_LABEL, "")),
    )


def service(data: bytes | msgspec.Raw) -> Service:
    """Decode a Service."""
    raw = _SERVICE.decode(data)
    return Service(
        namespace=_intern(raw.metadata.namespace),
        name=_intern(raw.metadata.name),
        addresses=tuple(a for a in raw.spec.cluster_ips or () if a and a != "None"),
        ports=_ports(raw.spec.ports),
        balancers=tuple(one.ip for one in raw.status.load_balancer.ingress or () if one.ip),
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


def _ports(ports: list[wire.Port] | None) -> tuple[tuple[str, int], ...]:
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


def metadata(data: bytes | msgspec.Raw) -> wire.Meta:
    """Decode only `metadata`, of any object."""
    return _OBJECT.decode(data).metadata


_POD = msgspec.json.Decoder(wire.Pod)
_NODE = msgspec.json.Decoder(wire.Node)
_SERVICE = msgspec.json.Decoder(wire.Service)
_SLICE = msgspec.json.Decoder(wire.Slice)
_OBJECT = msgspec.json.Decoder(wire.Object)

Trimmed = Pod | Node | Service | Slice | Namespace
DECODERS: dict[str, Callable[[bytes | msgspec.Raw], Trimmed]] = {
    "pods": pod,
    "nodes": node,
    "services": service,
    "endpointslices": slice_,
    "namespaces": namespace,
}
