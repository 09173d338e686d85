"""What of a span is text: its name, kind and status, and the attributes that say something in words.

Many spans say the same, so each text is encoded once and then copied. There are several, each about what varies
together: all their combinations would be too many.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from latencyprobe_agent.identity.resources import UNKNOWN_SERVICE, Resources
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import PAIR_STAGES, half_stages
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.telemetry.matching import halves_of
from latencyprobe_agent.telemetry.ragged import Piece, pick
from latencyprobe_agent.telemetry.span_rows import JOINED_HERE, JOINED_REMOTELY, NOT_JOINED, Ready, SpanTarget
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Outcome, Role
from latencyprobe_agent.vocabulary.values import ERRORS

# Each text is below 1 kB, but for names of services: at most 6 MB are kept.
_SAMPLED = 0x01
_KNOWS_REMOTE, _IS_REMOTE = 0x100, 0x200  # SpanFlags of opentelemetry-proto: whether the parent is in another process
_ALL_FLAGS = np.uint32(sum(ExchangeFlags))
ROOT_REASONS = ("", "peer_unresolved", "client_not_measured")
PEER_UNRESOLVED, CLIENT_NOT_MEASURED = 1, 2


def columns(ready: Ready, root: NDArray[np.integer], resources: Resources) -> list[list[Piece]]:
    """Return what each span says in words. `root`: index of ROOT_REASONS, of each span."""
    rows = ready.rows
    role, joined, peer = rows["role"], rows["joined"], rows["peer"]
    server = role == Role.SERVER
    nameless = np.array([not target.name for target in ready.targets])[rows["target"]]
    port = np.where(server, rows["local_port"], rows["peer_port"])
    of_pair = ~server & (joined != NOT_JOINED)
    dominant = np.where(of_pair, rows["pair_dominant"], rows["dominant"])
    shown, who = _shown(ready, resources)
    unnamed = np.array([not service for service, _ in shown])[who]

    def named(target: int, *others: int) -> bytes:
        return _named(ready.targets[target], *others)

    def addressed(peer: int, role: int) -> bytes:
        address, identity = ready.peers[peer]
        if role == Role.SERVER:
            return _caller(address)
        # nobody but a Service has a service name without a pod
        return _dialled(address, identity.service if identity is not None and not identity.pod else "")

    def service(answered: int, who: int, joined: int) -> bytes:
        if not answered:
            return _service(*shown[who])
        identity = ready.peers[who].identity
        if identity is None:
            return b"" if joined else _UNRESOLVED
        return _service(identity.service or identity.workload, identity.namespace)

    return [
        _said(named, rows["target"], np.where(nameless, port, 0), role, rows["reason"], joined, root),
        _said(_ended, rows["stream_id"] != 0, rows["conn_class"], rows["outcome"], rows["flags"] & _ALL_FLAGS),
        _said(_dominant, role, of_pair, dominant),
        _said(addressed, peer, role),
        _said(_local, server, *(np.where(server, half, 0) for half in halves_of(rows["local_addr"]))),
        _said(service, unnamed, np.where(unnamed, peer, who), joined),
    ]


def _said(say: Callable[..., bytes], *columns: NDArray[Any]) -> list[Piece]:
    """Return what `say` returns for the columns' values."""
    first, code = groups(columns)
    return pick([say(*values) for values in zip(*(column[first].tolist() for column in columns), strict=True)], code)


@lru_cache(maxsize=1024)
def _named(target: SpanTarget, *said: int) -> bytes:
    server_port, role, reason, joined, root = said  # the port is 0 if the target has a name
    server = role == Role.SERVER
    attributes: dict[Attribute, AttributeValue] = {
        names.NETWORK_TRANSPORT: "tcp",
        names.PROBE: target.probe,
        names.TARGET: target.name,
        names.SAMPLED_REASON: Reason(reason).name.lower(),
    }
    if joined != NOT_JOINED:
        attributes[names.JOINED] = names.LOCAL if joined == JOINED_HERE else names.REMOTE
    if root:
        attributes[names.ROOT_REASON] = ROOT_REASONS[root]
    return encoded(
        attributes,
        name=target.name or f"TCP {server_port}",
        kind=Span.SPAN_KIND_SERVER if server else Span.SPAN_KIND_CLIENT,
        flags=_SAMPLED | (_KNOWS_REMOTE | _IS_REMOTE if server and not root else 0),
    )


@lru_cache(maxsize=1024)
def _ended(of_stream: int, conn_class: int, outcome: int, flags: int) -> bytes:
    attributes: dict[Attribute, AttributeValue] = {names.CLASS: ExchangeClass(conn_class).name.lower()}
    if of_stream:
        attributes |= {names.NETWORK_PROTOCOL_NAME: "http", names.NETWORK_PROTOCOL_VERSION: "2"}
    if told := "|".join(flag.name.lower() for flag in ExchangeFlags(flags) if flag.name):
        attributes[names.FLAGS] = told
    if outcome == Outcome.OK:
        return encoded(attributes)
    attributes[names.ERROR_TYPE] = ERRORS[Outcome(outcome)].type
    if of_stream and conn_class == ExchangeClass.STREAMING and outcome == Outcome.STREAM_RESET:
        return encoded(attributes)  # how a subscription ends
    return encoded(attributes, status=Status(code=Status.STATUS_CODE_ERROR))


@lru_cache(maxsize=64)
def _dominant(role: int, of_pair: int, dominant: int) -> bytes:
    return encoded({names.DOMINANT_STAGE: (PAIR_STAGES if of_pair else half_stages(role))[dominant]})


@lru_cache(maxsize=4096)
def _caller(peer: str) -> bytes:
    return encoded({**_peer(peer), names.CLIENT_ADDRESS: peer})


@lru_cache(maxsize=4096)
def _dialled(peer: str, service: str) -> bytes:
    return encoded({**_peer(peer), names.SERVER_ADDRESS: service or peer})


def _peer(peer: str) -> dict[Attribute, AttributeValue]:
    return {names.NETWORK_TYPE: "ipv6" if ":" in peer else "ipv4", names.NETWORK_PEER_ADDRESS: peer}


@lru_cache(maxsize=1024)
def _local(server: int, *halves: int) -> bytes:
    if not server:
        return b""
    return encoded({names.SERVER_ADDRESS: address(np.array(halves, np.uint64).tobytes())})


@lru_cache(maxsize=4096)
def _service(name: str, namespace: str) -> bytes:
    attributes: dict[Attribute, AttributeValue] = {}
    if name:
        attributes[names.SERVICE_PEER_NAME] = attributes[names.PEER_SERVICE] = name
    if namespace:
        attributes[names.SERVICE_PEER_NAMESPACE] = namespace
    return encoded(attributes)


def _shown(ready: Ready, resources: Resources) -> tuple[list[tuple[str, str]], NDArray[np.intp]]:
    """Return service names and namespaces that pairs show of the other end, and which of them each span has.

    Without a name: not joined, or nobody knows it.
    """
    rows = ready.rows
    whose = np.select(
        [rows["joined"] == JOINED_HERE, rows["joined"] == JOINED_REMOTELY], [rows["other_owner"], rows["server"]]
    )
    first, code = groups([rows["joined"], whose])
    shown = []
    for joined, other in zip(rows["joined"][first].tolist(), whose[first].tolist(), strict=True):
        if joined == JOINED_HERE:
            shown.append(_service_of(resources, other))
        else:
            shown.append(ready.servers[other] if joined == JOINED_REMOTELY else ("", ""))
    return shown, code


def _service_of(resources: Resources, owner: int) -> tuple[str, str]:
    """Return service name and namespace of a half that was joined here; empty if nobody knows it."""
    attributes = resources.attributes(owner)
    if attributes[names.SERVICE_NAME] == UNKNOWN_SERVICE:
        return "", ""
    namespace = attributes.get(names.SERVICE_NAMESPACE) or attributes.get(names.K8S_NAMESPACE_NAME) or ""
    return str(attributes[names.SERVICE_NAME]), str(namespace)


def encoded(attributes: Mapping[Attribute, AttributeValue], **fields: Any) -> bytes:
    """Return a part of a span: attributes and fields of it."""
    span = Span(**fields)
    fill(span.attributes, attributes)
    part: bytes = span.SerializeToString()
    return part


_UNRESOLVED = encoded({names.PEER_UNRESOLVED: True})
