"""Spans as one object each, filled attribute by attribute: what the encoder that writes columns is compared with."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from latencyprobe_agent.identity.resources import UNKNOWN_SERVICE
from latencyprobe_agent.measure.keys import child_span_ids, span_ids
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import PAIR_STAGES, half_stages
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.telemetry.span_encoder import Context
from latencyprobe_agent.telemetry.span_rows import AS_EVENTS, AS_SPANS, JOINED_HERE, JOINED_REMOTELY, NOT_JOINED, Ready
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Outcome, Role
from latencyprobe_agent.vocabulary.values import ERRORS

_NO_RTT_MIN = 0xFFFFFFFF


def grouped(ready: Ready, context: Context) -> list[ResourceSpans]:
    """All spans, by resource in the order of owners."""
    groups: dict[int, ResourceSpans] = {}
    for row in ready.rows[np.argsort(ready.rows["owner"], kind="stable")]:
        owner = int(row["owner"])
        if owner not in groups:
            scope = ScopeSpans(scope=InstrumentationScope(name=names.SCOPE))
            groups[owner] = ResourceSpans(scope_spans=[scope])
            fill(groups[owner].resource.attributes, context.resources.attributes(owner))
        half = _Half(row, ready, context)
        groups[owner].scope_spans[0].spans.extend([half.span(), *half.children()])
    return list(groups.values())


class _Half:
    def __init__(self, row: Any, ready: Ready, context: Context) -> None:
        self.row, self.ready, self.context = row, ready, context
        self.target = ready.targets[row["target"]]
        self.peer, self.identity = ready.peers[row["peer"]]
        self.server = row["role"] == Role.SERVER
        self.joined = row["joined"] != NOT_JOINED

    def span(self) -> Span:
        row, server = self.row, self.server
        client_id, server_id = (int(span_ids(half.reshape(1))[0]) for half in row["trace_id"])
        high, low = row["trace_id"].tolist()
        start_ns = int(row["start_ns"]) + self.context.unix_offset_ns
        span = Span(flags=0x01)
        span.trace_id = high.to_bytes(8, "big") + low.to_bytes(8, "big")
        span.span_id = (server_id if server else client_id).to_bytes(8, "big")
        span.name = self.target.name or f"TCP {row['local_port' if server else 'peer_port']}"
        span.kind = Span.SPAN_KIND_SERVER if server else Span.SPAN_KIND_CLIENT
        span.start_time_unix_nano = start_ns
        span.end_time_unix_nano = start_ns + int(row["stages"].sum())
        attributes = dict(self.attributes())
        if server:
            if root_reason := self.why_root():
                attributes[names.ROOT_REASON] = root_reason
            else:
                span.parent_span_id = client_id.to_bytes(8, "big")
                span.flags |= 0x300
        outcome = Outcome(row["outcome"])
        if outcome is not Outcome.OK:
            attributes[names.ERROR_TYPE] = ERRORS[outcome].type
            streaming = row["stream_id"] and row["conn_class"] == ExchangeClass.STREAMING
            if not (streaming and outcome is Outcome.STREAM_RESET):
                span.status.code = Status.STATUS_CODE_ERROR
        for stage, at_ns, _ in self.stages()[1:] if row["stages_as"] == AS_EVENTS else ():
            span.events.add(time_unix_nano=at_ns, name=names.stage_attribute(stage))
        self.add_evidence(span, attributes)
        self.add_calls(span, attributes)
        fill(span.attributes, attributes)
        return span

    def stages(self) -> list[tuple[str, int, int]]:
        """Name, start and end of each."""
        start_ns = int(self.row["start_ns"]) + self.context.unix_offset_ns
        points = [start_ns, *(start_ns + int(at) for at in np.cumsum(self.row["stages"]))]
        return list(zip(half_stages(self.row["role"]), points, points[1:], strict=False))

    def children(self) -> Iterator[Span]:
        """The stages that are drawn."""
        of_id = self.row["trace_id"][1 if self.server else 0].reshape(1)
        ids = [int(one).to_bytes(8, "big") for one in (*span_ids(of_id), *child_span_ids(of_id, 4)[:, 0])]
        for i, (stage, start_ns, end_ns) in enumerate(self.stages()):
            its_server_is_drawn = stage == "wait" and self.joined
            if self.row["stages_as"] == AS_SPANS and end_ns > start_ns and not its_server_is_drawn:
                yield Span(
                    trace_id=b"".join(half.to_bytes(8, "big") for half in self.row["trace_id"].tolist()),
                    span_id=ids[1 + i],
                    parent_span_id=ids[0],
                    flags=0x101,
                    name=stage,
                    kind=Span.SPAN_KIND_INTERNAL,
                    start_time_unix_nano=start_ns,
                    end_time_unix_nano=end_ns,
                )

    def add_evidence(self, span: Span, attributes: dict[Any, Any]) -> None:
        records: dict[Any, list[Any]] = {}
        for noted in self.ready.evidence:
            for at in np.flatnonzero(noted.number == self.row["number"]):
                record = noted.records[at]
                records.setdefault(noted.explains, []).append(record)
                waits = noted.wait_ns[at : at + 1]
                if noted.explains.event is None or not len(noted.explains.shown(record.reshape(1), waits)):
                    continue
                event = span.events.add(name=noted.explains.event)
                event.time_unix_nano = int(record["flow"]["boot_ns"]) + self.context.unix_offset_ns
                fill(event.attributes, noted.explains.fields(record))
                if noted.explains.knows_cost:
                    fill(event.attributes, {names.WAIT: int(noted.wait_ns[at]) / 1e9})
        for explains, of_signal in records.items():
            attributes.update(explains.attributes(np.array(of_signal)))

    def add_calls(self, span: Span, attributes: dict[Any, Any]) -> None:
        for noted in self.ready.calls:
            for at in np.flatnonzero(noted.number == self.row["number"]):
                link = noted.links[at]
                far = link["client_trace" if noted.server else "server_trace"]
                if noted.server:
                    attributes.setdefault(names.CALLS, int(link["calls"]))
                    attributes.setdefault(names.CALLS_WAIT, int(link["waited_ns"]) / 1e9)
                    event = span.events.add(name=names.CALL_EVENT)
                    event.time_unix_nano = int(link["begin_ns"]) + self.context.unix_offset_ns
                    told = {
                        names.NETWORK_PEER_ADDRESS: address(bytes(link["peer_addr"])),
                        names.NETWORK_PEER_PORT: int(link["peer_port"]),
                        names.CALL_DURATION: int(link["wait_ns"]) / 1e9,
                        names.PAIR_KEY: "".join(f"{half:016x}" for half in link["client_trace"].tolist()),
                    }
                    if link["outcome"]:
                        told[names.ERROR_TYPE] = ERRORS[Outcome(link["outcome"])].type
                    fill(event.attributes, told)
                if link["linked"]:
                    to = span.links.add(flags=0x101)
                    to.trace_id = b"".join(half.to_bytes(8, "big") for half in far.tolist())
                    of_half = far[0 if noted.server else 1]
                    to.span_id = int(span_ids(of_half.reshape(1))[0]).to_bytes(8, "big")
                    fill(to.attributes, {names.LINK: "call" if noted.server else "caller"})

    def attributes(self) -> Iterator[tuple[Any, Any]]:
        row, server = self.row, self.server
        local, local_port = address(bytes(row["local_addr"])), int(row["local_port"])
        peer_port = int(row["peer_port"])
        yield names.NETWORK_TRANSPORT, "tcp"
        yield names.NETWORK_TYPE, "ipv6" if ":" in self.peer else "ipv4"
        yield names.NETWORK_PEER_ADDRESS, self.peer
        yield names.NETWORK_PEER_PORT, peer_port
        yield names.SERVER_ADDRESS, local if server else self.service_address() or self.peer
        yield names.SERVER_PORT, local_port if server else peer_port
        if server:
            yield names.CLIENT_ADDRESS, self.peer
            yield names.CLIENT_PORT, peer_port
        name, namespace = self.peer_service()
        if name:
            yield names.SERVICE_PEER_NAME, name
            yield names.PEER_SERVICE, name
        if namespace:
            yield names.SERVICE_PEER_NAMESPACE, namespace
        if self.identity is None and not self.joined:
            yield names.PEER_UNRESOLVED, True
        yield names.PROBE, self.target.probe
        yield names.TARGET, self.target.name
        yield names.CLASS, ExchangeClass(row["conn_class"]).name.lower()
        yield names.PAIR_KEY, "{:016x}{:016x}".format(*row["trace_id"].tolist())
        if row["stream_id"]:
            yield names.NETWORK_PROTOCOL_NAME, "http"
            yield names.NETWORK_PROTOCOL_VERSION, "2"
            yield names.STREAM_ID, int(row["stream_id"])
        if row["first_answer_ns"]:
            yield names.FIRST_ANSWER, int(row["first_answer_ns"]) / 1e9
        yield names.REQUEST_SIZE, int(row["request_bytes"])
        yield names.RESPONSE_SIZE, int(row["response_bytes"])
        stage_names = half_stages(row["role"])
        for stage, stage_ns in zip(stage_names, row["stages"].tolist(), strict=True):
            yield names.stage_attribute(stage), stage_ns / 1e9
        if self.joined and not server:
            for stage, stage_ns in zip(PAIR_STAGES, row["pair_stages"].tolist(), strict=True):
                yield names.stage_attribute(stage), stage_ns / 1e9
            yield names.DOMINANT_STAGE, PAIR_STAGES[row["pair_dominant"]]
        else:
            yield names.DOMINANT_STAGE, stage_names[row["dominant"]]
        if row["srtt_us"]:
            yield names.RTT, int(row["srtt_us"]) / 1e6
        if row["rtt_min_us"] != _NO_RTT_MIN:
            yield names.RTT_MIN, int(row["rtt_min_us"]) / 1e6
        if row["retransmits"]:
            yield names.RETRANSMITS, int(row["retransmits"])
        yield names.SAMPLED_REASON, Reason(row["reason"]).name.lower()
        yield names.SAMPLED_RATIO, float(row["ratio"])
        if self.joined:
            yield names.JOINED, names.LOCAL if row["joined"] == JOINED_HERE else names.REMOTE
            if not math.isnan(row["excess_ns"]):
                yield names.NETWORK_EXCESS, float(row["excess_ns"]) / 1e9
        if flags := "|".join(flag.name.lower() for flag in ExchangeFlags(int(row["flags"])) if flag.name):
            yield names.FLAGS, flags

    def why_root(self) -> str:
        shared = self.context.shared_key and self.target.clients
        if self.joined or self.row["reason"] == Reason.OTHER_HALF or shared:
            return ""
        if self.identity is None:
            return "peer_unresolved"
        return "" if self.target.id in self.identity.measured else "client_not_measured"

    def peer_service(self) -> tuple[str, str]:
        if self.row["joined"] == JOINED_REMOTELY:
            server = self.ready.servers[self.row["server"]]
            if server[0]:
                return server
        elif self.joined:
            attributes = self.context.resources.attributes(int(self.row["other_owner"]))
            if attributes[names.SERVICE_NAME] != UNKNOWN_SERVICE:
                namespace = attributes.get(names.SERVICE_NAMESPACE) or attributes.get(names.K8S_NAMESPACE_NAME) or ""
                return str(attributes[names.SERVICE_NAME]), str(namespace)
        if self.identity is None:
            return "", ""
        return self.identity.service or self.identity.workload, self.identity.namespace

    def service_address(self) -> str:
        identity = self.identity
        return identity.service if identity is not None and identity.service and not identity.pod else ""
