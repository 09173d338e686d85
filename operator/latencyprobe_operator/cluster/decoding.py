"""The API server's JSON → trimmed objects. Pure; unknown fields are skipped without making a Python object of them.

`DECODERS` has a function for each kind, from the bytes of one object. They raise msgspec.ValidationError on what no API
server sends.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from latencyprobe_operator.cluster import wire
from latencyprobe_operator.cluster.addresses import canonical
from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint, Taint
from latencyprobe_operator.cluster.pod_text import Text, is_too_much
from latencyprobe_operator.cluster.trouble import is_agent, trouble

MEASURE_LABEL = "latencyprobe.dev/measure"
SUSPEND_LABEL = "latencyprobe.dev/suspend"  # value `true`, set by the cluster's admin on the operator's namespace
CLUSTER_SCOPE_LABEL = "latencyprobe.dev/cluster-scope"  # value `allowed`, set by the cluster's admin on a namespace
ATTRIBUTE_PREFIX = "resource.opentelemetry.io/"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"  # on the EndpointSlices of a Service without an address
SYSTEM_LABEL = "kubernetes.io/os"
PORTS = 256  # of a Service: the API server takes 30,000
FAMILIES = 2  # IPv4 and IPv6
UID = 64  # characters; a UUID has 36
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
    labels, terminal = meta.labels or {}, status.phase in ("Succeeded", "Failed")
    meant_for, why = trouble(data) if owner is not None and is_agent(owner.kind, labels) else ("", None)
    bare = Pod(
        uid=meta.uid,
        namespace=_intern(meta.namespace),
        name=meta.name,
        node=_intern(spec.node_name),
        owner_kind=_intern(owner.kind) if owner else "",
        owner_name=_intern(owner.name) if owner else "",
        terminating=meta.deletion_timestamp is not None,
        terminal=terminal,
        meant_for=_intern(meant_for),
        trouble=why,
    )
    return bare if terminal or not spec.node_name else _running(bare, raw)


def _running(bare: Pod, raw: wire.Pod) -> Pod:
    """Return a pod that runs, or is about to, with what planning needs of it."""
    meta, spec, status = raw.metadata, raw.spec, raw.status
    ids = dict(_running_ids(status))
    containers, inits = spec.containers or [], spec.init_containers or []
    known = [*containers, *inits]
    serving = [*containers, *(c for c in inits if c.restart_policy == "Always")]
    ports = [p for c in serving for p in c.ports or () if p.protocol == "TCP"]
    extra = sorted(ids.keys() - {c.name for c in known})  # ephemeral containers: no spec that we read
    text, labels = Text(), meta.labels or {}
    if too_much := is_too_much(labels):
        text.omit("labels")
    every: list[wire.Container | str] = [*known, *extra]
    kept = text.items("containers", every, lambda one: one if isinstance(one, str) else one.name)
    known, extra = known[: len(kept)], extra[: max(len(kept) - len(known), 0)]
    ports = text.items("ports", ports, lambda port: port.name or "")
    attributes = text.pairs(
        sorted(
            (_intern(k.removeprefix(ATTRIBUTE_PREFIX)), v)
            for k, v in (meta.annotations or {}).items()
            if k.startswith(ATTRIBUTE_PREFIX) and k != ATTRIBUTE_PREFIX
        )
    )
    return replace(
        bare,
        labels=_labels(() if too_much else tuple(labels.items())),
        addresses=canonical(ip.ip for ip in status.pod_ips or ()),
        containers=(
            *(_container(c, ids.get(c.name, ""), text) for c in known if c.name in ids or c in containers),
            *(Container(name, ids[name]) for name in extra),
        ),
        ports=_shared(_by_name(ports)),
        numbers=_shared(tuple(sorted({p.container_port for p in ports}))),
        attributes=_shared(attributes),
        host_network=spec.host_network,
        unselectable=too_much,
        left_out=text.left_out,
    )


def _by_name(ports: Iterable[wire.Port]) -> tuple[tuple[str, int], ...]:
    """Return ports with names: the first of a name, as for a Service (FindPort of k8s.io/endpointslice)."""
    found: dict[str, int] = {}
    for port in ports:
        if port.name:
            found.setdefault(_intern(port.name), port.container_port)
    return tuple(found.items())


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
        addresses=canonical(a.address for a in raw.status.addresses or () if a.type in ("InternalIP", "ExternalIP")),
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
    """Decode a Service. Of one that has no address of its own no port is dialled."""
    raw = _SERVICE.decode(data)
    addresses = canonical(raw.spec.cluster_ips or ())  # without `None`, a headless one's
    ports = raw.spec.ports or [] if addresses else []
    return Service(
        namespace=_intern(raw.metadata.namespace),
        name=_intern(raw.metadata.name),
        addresses=addresses,
        ports=_ports(ports[:PORTS]),
        left_out=max(len(ports) - PORTS, 0),
        balancers=canonical(one.ip for one in raw.status.load_balancer.ingress or ()),
    )


def slice_(data: bytes | msgspec.Raw) -> Slice:
    """Decode an EndpointSlice: only entries that refer to a pod, and none where no Service has an address for them."""
    raw = _SLICE.decode(data)
    labels = raw.metadata.labels or {}
    service = labels.get(SERVICE_NAME_LABEL, "")
    used = service != "" and HEADLESS_LABEL not in labels
    return Slice(
        namespace=_intern(raw.metadata.namespace),
        name=raw.metadata.name,
        service=_intern(service),
        ports=_ports((raw.ports or [])[:PORTS] if used else ()),
        endpoints=tuple(_endpoints(raw.endpoints or ())) if used else (),
    )


def _endpoints(endpoints: Iterable[wire.Endpoint]) -> Iterator[SliceEndpoint]:
    """Yield what may be a pod's: it has an address of each family and nothing else for one, and a UUID."""
    for one in endpoints:
        stored, ref = one.addresses or (), one.target_ref
        if ref is not None and ref.kind == "Pod" and 0 < len(ref.uid) <= UID and len(stored) <= FAMILIES:
            addresses = canonical(stored)
            if 0 < len(addresses) == len(stored):
                yield SliceEndpoint(ref.uid, addresses)


def _ports(ports: Iterable[wire.Port]) -> tuple[tuple[str, int], ...]:
    return tuple((_intern(p.name or ""), p.port) for p in ports if p.port and (p.protocol or "TCP") == "TCP")


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
