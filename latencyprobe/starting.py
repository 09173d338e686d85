"""A LatencyProbe to begin with, from what is known before anybody has written one: ports, or what a cluster says.

Pure: documents out. `latencyprobe init` prints them, `latencyprobe run --port` measures with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from latencyprobe.api import API_VERSION, KIND
from latencyprobe.errors import SpecError
from latencyprobe.plan import Role
from latencyprobe.protocol import Protocol

THRESHOLD = "100ms"
GOAL = "99"
# What is known of who listens there by custom: IANA's service names, and gRPC's own examples.
_BY_PORT: Mapping[int, Mapping[str, object]] = {
    5432: {"setupTurns": 4},  # PostgreSQL signs in with SCRAM
    50051: {"protocol": Protocol.HTTP2.value},
}
_BY_STREAM = ("grpc", "h2c", "http2", "kubernetes.io/h2c")  # appProtocol, or the beginning of a port's name
_SUFFIX, _OF_CALLERS = "-fast", "-callers-fast"  # of an objective's name, behind its target's
_LONGEST = 63 - len(_OF_CALLERS)  # of a target's name, so that its objectives' have room
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")

Document = dict[str, Any]


def of_ports(
    ports: Sequence[int], *, threshold: str = THRESHOLD, protocol: str | None = None, callers: bool = False
) -> Document:
    """Return a LatencyProbe with a target for each of these ports (at least one), and an objective of each; with
    `callers` also one of what its callers saw."""
    targets = []
    for port in dict.fromkeys(ports):
        known = _BY_PORT.get(port, {}) if protocol is None else {"protocol": protocol}
        targets.append({"name": f"port-{port}", "ports": [port], **known})
    return _document({"name": "host"}, targets, threshold, callers)


def of_object(found: Mapping[str, Any], *, threshold: str = THRESHOLD, callers: bool = False) -> Document:
    """Return a LatencyProbe for the pods of a Service or a workload, as the API server describes it; `callers`: as of
    `of_ports`.

    Raises SpecError where it selects no pods, or is something else.
    """
    kind, metadata, spec = found.get("kind", "?"), found["metadata"], found.get("spec", {})
    if kind == "Service":
        selector, ports = _of_service(metadata["name"], spec)
    elif kind in _WORKLOADS:
        selector, ports = spec["selector"], _of_containers(spec["template"]["spec"])
    else:
        raise SpecError(
            "", f"{kind} selects no pods: give a Service, or one of {', '.join(_WORKLOADS)}", metadata["name"]
        )
    name = metadata["name"][:63].strip("-.").replace(".", "-")
    by_stream = [port for port, streams in ports.items() if streams]
    by_turns = [port for port, streams in ports.items() if not streams]
    stem = name[: _LONGEST - len("-grpc")]
    targets: list[Document] = []
    if by_turns or not ports:
        targets.append({"name": f"{stem}-tcp" if by_stream else name, "podSelector": selector, **_ports(by_turns)})
    if by_stream:
        of_streams = {**_ports(by_stream), "protocol": Protocol.HTTP2.value}
        targets.append({"name": f"{stem}-grpc" if by_turns else name, "podSelector": selector, **of_streams})
    return _document({"name": name, "namespace": metadata.get("namespace", "default")}, targets, threshold, callers)


def _document(metadata: Document, targets: Sequence[Document], threshold: str, callers: bool) -> Document:
    sides: list[tuple[str, Document]] = [(_SUFFIX, {})]
    if callers:
        sides.append((_OF_CALLERS, {"perspective": Role.CLIENT.value}))
    objectives = [
        {
            "name": f"{one['name'][:_LONGEST]}{suffix}",
            "target": one["name"],
            "threshold": threshold,
            "goal": GOAL,
            "window": "1d",
            **side,
        }
        for one in targets
        for suffix, side in sides
    ]
    spec = {"targets": list(targets), "objectives": objectives}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _of_service(name: str, spec: Mapping[str, Any]) -> tuple[Document, dict[int | str, bool]]:
    if not spec.get("selector"):
        raise SpecError("spec.selector", "is empty: pods of a Service without one are not known: give a workload", name)
    ports = {
        one.get("targetPort", one["port"]): _streams(one.get("appProtocol", ""), one.get("name", ""))
        for one in spec.get("ports", ())
        if one.get("protocol", "TCP") == "TCP"
    }
    if not ports:
        raise SpecError("spec.ports", "has no TCP port: nothing else is measured", name)
    return {"matchLabels": spec["selector"]}, ports


def _of_containers(pod: Mapping[str, Any]) -> dict[int | str, bool]:
    containers: Iterable[Mapping[str, Any]] = pod.get("containers", ())
    return {
        one["containerPort"]: _streams("", one.get("name", ""))
        for container in containers
        for one in container.get("ports", ())
        if one.get("protocol", "TCP") == "TCP"
    }


def _streams(app_protocol: str, port_name: str) -> bool:
    return app_protocol in _BY_STREAM or port_name.startswith(_BY_STREAM)


def _ports(ports: Sequence[int | str]) -> Document:
    return {"ports": list(ports)} if ports else {}
