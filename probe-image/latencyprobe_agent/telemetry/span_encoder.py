"""Sampled halves → OTLP trace requests: one CLIENT or SERVER span each, grouped by the container that was observed.

Pure: receives spans that need not wait any longer, returns encoded requests below 4 MiB. Messages of
opentelemetry-proto are filled directly; no SDK span exists. Rules: docs/design/telemetry.md, "Spans" and "Parents".
"""

import math
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import NamedTuple

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from latencyprobe.plan import Identity
from latencyprobe_agent.identity.resources import UNKNOWN_SERVICE, Resources
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import PAIR_STAGES, half_stages
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.telemetry.waiting import PendingSpan, is_server, owner
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Outcome
from latencyprobe_agent.vocabulary.values import ERRORS

_SPANS_PER_REQUEST = 1500  # of about 2 kB: 3 MiB, below the 4 MiB that receivers accept by default
_NO_RTT_MIN = 0xFFFFFFFF
_SAMPLED = 0x01
_KNOWS_REMOTE, _IS_REMOTE = 0x100, 0x200  # SpanFlags of opentelemetry-proto: whether the parent is in another process


class Context(NamedTuple):
    """What holds for all spans of a turn. `unix_offset_ns`: add to boot time for Unix time. `shared_key`: another
    host measures the other half with the same pairing key (standalone `--pair-key`), though nobody can confirm it."""

    resources: Resources
    unix_offset_ns: int
    shared_key: bool = False


def requests(ready: Sequence[PendingSpan], context: Context) -> Iterator[tuple[bytes, int]]:
    """Yield (encoded ExportTraceServiceRequest, number of spans)."""
    for start in range(0, len(ready), _SPANS_PER_REQUEST):
        part = ready[start : start + _SPANS_PER_REQUEST]
        request = ExportTraceServiceRequest()
        groups: dict[int, ResourceSpans] = {}
        for one in part:
            observed = owner(one.halves.rec[one.row], by_process=context.resources.by_process)
            if observed not in groups:
                groups[observed] = request.resource_spans.add()
                fill(groups[observed].resource.attributes, context.resources.attributes(observed))
                groups[observed].scope_spans.add().scope.name = names.SCOPE
            _span(groups[observed].scope_spans[0].spans.add(), one, context)
        yield request.SerializeToString(), len(part)


def _span(span: Span, one: PendingSpan, context: Context) -> None:
    halves, row, server = one.halves, one.row, is_server(one)
    record = halves.rec[row]
    high, low = one.trace_id
    client_id, server_id = one.span_ids
    start_ns = int(halves.start_ns[row]) + context.unix_offset_ns
    span.trace_id = high.to_bytes(8, "big") + low.to_bytes(8, "big")
    span.span_id = (server_id if server else client_id).to_bytes(8, "big")
    span.flags = _SAMPLED
    span.name = one.target.name or f"TCP {record['local_port' if server else 'peer_port']}"
    span.kind = Span.SPAN_KIND_SERVER if server else Span.SPAN_KIND_CLIENT
    span.start_time_unix_nano = start_ns
    span.end_time_unix_nano = int(halves.end_ns[row]) + context.unix_offset_ns
    attributes = dict(_attributes(one, context))
    if server:
        root_reason = _why_root(one, shared_key=context.shared_key)
        if root_reason:
            attributes[names.ROOT_REASON] = root_reason
        else:
            span.parent_span_id = client_id.to_bytes(8, "big")
            span.flags |= _KNOWS_REMOTE | _IS_REMOTE
    outcome = Outcome(record["outcome"])
    if outcome is not Outcome.OK:
        attributes[names.ERROR_TYPE] = ERRORS[outcome].type
        span.status.code = Status.STATUS_CODE_ERROR
    for explains, records in _by_signal(one).items():
        attributes.update(explains.attributes(np.array(records)))
    fill(span.attributes, attributes)
    at_ns = start_ns
    stage_names = half_stages(record["role"])
    stage_ns = halves.stages[row].tolist()
    for stage, before_ns in zip(stage_names[1:], stage_ns, strict=False):
        at_ns += before_ns
        span.events.add(time_unix_nano=at_ns, name=names.stage_attribute(stage))
    for explains, evidence, wait_ns in one.evidence:
        event = span.events.add(name=explains.event)
        event.time_unix_nano = int(evidence["flow"]["boot_ns"]) + context.unix_offset_ns
        fill(event.attributes, explains.fields(evidence))
        if explains.waits:
            fill(event.attributes, {names.WAIT: wait_ns / 1e9})


def _by_signal(one: PendingSpan) -> dict[Explains, list[np.void]]:
    found: dict[Explains, list[np.void]] = {}
    for explains, record, _ in one.evidence:
        found.setdefault(explains, []).append(record)
    return found


def _attributes(one: PendingSpan, context: Context) -> Iterator[tuple[Attribute, AttributeValue]]:
    record, server = one.halves.rec[one.row], is_server(one)
    local, local_port = address(bytes(record["local_addr"])), int(record["local_port"])
    peer_port = int(record["peer_port"])
    yield names.NETWORK_TRANSPORT, "tcp"
    yield names.NETWORK_TYPE, "ipv6" if ":" in one.peer else "ipv4"
    yield names.NETWORK_PEER_ADDRESS, one.peer
    yield names.NETWORK_PEER_PORT, peer_port
    yield names.SERVER_ADDRESS, local if server else _service_address(one.identity) or one.peer
    yield names.SERVER_PORT, local_port if server else peer_port
    if server:
        yield names.CLIENT_ADDRESS, one.peer
        yield names.CLIENT_PORT, peer_port
    name, namespace = _peer_service(one, context)
    if name:
        yield names.SERVICE_PEER_NAME, name
        yield names.PEER_SERVICE, name
    if namespace:
        yield names.SERVICE_PEER_NAMESPACE, namespace
    if one.identity is None and one.join is None:
        yield names.PEER_UNRESOLVED, True
    yield names.PROBE, one.target.probe
    yield names.TARGET, one.target.name
    yield names.CLASS, ExchangeClass(record["conn_class"]).name.lower()
    yield names.PAIR_KEY, "{:016x}{:016x}".format(*one.trace_id)
    yield names.REQUEST_SIZE, int(record["request_bytes"])
    yield names.RESPONSE_SIZE, int(record["response_bytes"])
    stage_names = half_stages(record["role"])
    for stage, stage_ns in zip(stage_names, one.halves.stages[one.row].tolist(), strict=True):
        yield names.stage_attribute(stage), stage_ns / 1e9
    if one.join is not None and not server:
        for stage, stage_ns in zip(PAIR_STAGES, one.join.stages_ns, strict=True):
            yield names.stage_attribute(stage), stage_ns / 1e9
        yield names.DOMINANT_STAGE, PAIR_STAGES[one.join.dominant]
    else:
        yield names.DOMINANT_STAGE, stage_names[one.halves.dominant[one.row]]
    if record["srtt_us"]:
        yield names.RTT, int(record["srtt_us"]) / 1e6
    if record["rtt_min_us"] != _NO_RTT_MIN:
        yield names.RTT_MIN, int(record["rtt_min_us"]) / 1e6
    if record["retransmits"]:
        yield names.RETRANSMITS, int(record["retransmits"])
    yield names.SAMPLED_REASON, one.reason.name.lower()
    yield names.SAMPLED_RATIO, one.ratio
    if one.join is not None:
        yield names.JOINED, names.LOCAL if one.join.server is None else names.REMOTE
        if not math.isnan(one.join.excess_ns):
            yield names.NETWORK_EXCESS, one.join.excess_ns / 1e9
    if flags := "|".join(flag.name.lower() for flag in ExchangeFlags(int(record["flags"])) if flag.name):
        yield names.FLAGS, flags


def _why_root(one: PendingSpan, *, shared_key: bool) -> str:
    """Return "" if the client half of this server half is measured, else why no parent can be named."""
    if one.join is not None or one.reason is Reason.OTHER_HALF or (shared_key and one.target.clients):
        return ""
    if one.identity is None:
        return "peer_unresolved"
    return "" if one.target.id in one.identity.measured else "client_not_measured"


def _peer_service(one: PendingSpan, context: Context) -> tuple[str, str]:
    """Return service name and namespace of the other end: what a pair shows, else what was answered."""
    if one.join is not None and one.join.server is not None:
        if one.join.server[0]:
            return one.join.server
    elif one.join is not None:
        other = one.join.client_owner if is_server(one) else one.join.server_owner
        attributes = context.resources.attributes(other)
        if attributes[names.SERVICE_NAME] != UNKNOWN_SERVICE:
            namespace = attributes.get(names.SERVICE_NAMESPACE) or attributes.get(names.K8S_NAMESPACE_NAME) or ""
            return str(attributes[names.SERVICE_NAME]), str(namespace)
    if one.identity is None:
        return "", ""
    return one.identity.service or one.identity.workload, one.identity.namespace


def _service_address(identity: Identity | None) -> str:
    """Return the Service's name when the dialled address is a Service's: nobody else's address has a service name."""
    return identity.service if identity is not None and identity.service and not identity.pod else ""


def fill(
    into: MutableSequence[KeyValue], attributes: Mapping[str, AttributeValue] | Mapping[Attribute, AttributeValue]
) -> None:
    """Append attributes to a message."""
    into.extend(KeyValue(key=key, value=any_value(value)) for key, value in attributes.items())


def any_value(value: AttributeValue) -> AnyValue:
    """Return a Python value as OTLP's."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value) if isinstance(value, float) else AnyValue(string_value=value)
