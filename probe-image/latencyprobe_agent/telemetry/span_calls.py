"""What the few spans with calls say of them: the server's how many and how long, each as event and link; the client's
who waited for it.

Rules: docs/design/telemetry.md, "Links".
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.measure.keys import span_ids
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.telemetry.matching import find
from latencyprobe_agent.telemetry.ragged import Piece, pick
from latencyprobe_agent.telemetry.span_rows import NotedCalls
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import Outcome
from latencyprobe_agent.vocabulary.values import ERRORS

_SAMPLED_AND_HERE = 0x101  # trace flags, and that it is known to be no remote context


def called(number: NDArray[np.uint64], calls: Sequence[NotedCalls], unix_offset_ns: int) -> list[Piece]:
    """Return what calls add to the spans with these numbers. `calls`: maybe of others too."""
    spans: dict[int, Span] = {}
    for noted in calls:
        (far, half) = ("client_trace", 0) if noted.server else ("server_trace", 1)
        far_ids = span_ids(noted.links[far][:, half]).tolist()
        for at, link, far_id in zip(find(noted.number, number).tolist(), noted.links, far_ids, strict=True):
            if at < 0:
                continue
            span = spans.setdefault(at, Span())
            if noted.server:
                if not span.attributes:
                    told = {names.CALLS: int(link["calls"]), names.CALLS_WAIT: int(link["waited_ns"]) / 1e9}
                    fill(span.attributes, told)
                span.events.append(_event(link, unix_offset_ns))
            if link["linked"]:
                span.links.append(_link(link[far], far_id, names.TO_CALL if noted.server else names.TO_CALLER))
    table = [span.SerializeToString() for span in spans.values()]
    return pick(table, np.arange(len(table)), np.fromiter(spans, np.intp, len(spans)))


def _link(trace_id: NDArray[np.uint64], span_id: int, what: str) -> Span.Link:
    link = Span.Link(trace_id=trace_id.astype(">u8").tobytes(), span_id=span_id.to_bytes(8, "big"))
    link.flags = _SAMPLED_AND_HERE
    fill(link.attributes, {names.LINK: what})
    return link


def _event(link: np.void, unix_offset_ns: int) -> Span.Event:
    event = Span.Event(name=names.CALL_EVENT, time_unix_nano=int(link["begin_ns"]) + unix_offset_ns)
    attributes: dict[Attribute, AttributeValue] = {
        names.NETWORK_PEER_ADDRESS: address(link["peer_addr"].tobytes()),
        names.NETWORK_PEER_PORT: int(link["peer_port"]),
        names.CALL_DURATION: int(link["wait_ns"]) / 1e9,
        names.PAIR_KEY: "{:016x}{:016x}".format(*link["client_trace"].tolist()),
    }
    outcome = Outcome(int(link["outcome"]))
    if outcome is not Outcome.OK:
        attributes[names.ERROR_TYPE] = ERRORS[outcome].type
    fill(event.attributes, attributes)
    return event
