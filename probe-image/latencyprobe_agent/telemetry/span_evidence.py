"""What evidence adds to the few spans that it explains: attributes of the span, and an event for each record."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.telemetry.matching import find
from latencyprobe_agent.telemetry.ragged import Piece, pick
from latencyprobe_agent.telemetry.span_rows import Noted
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue


class Explained(NamedTuple):
    """`pieces`: what the spans with evidence say of it. `resent`: bool of each span, it says how often segments were
    sent again, which the span then need not."""

    pieces: list[Piece]
    resent: NDArray[np.bool_]


def explained(number: NDArray[np.uint64], evidence: Sequence[Noted], unix_offset_ns: int) -> Explained:
    """Return what evidence says of the spans with these numbers. `evidence`: maybe of others too."""
    by_signal: dict[Explains, dict[int, list[tuple[np.void, int]]]] = {}
    for noted in evidence:
        of_span = by_signal.setdefault(noted.explains, {})
        for at, record, wait_ns in zip(
            find(noted.number, number).tolist(), noted.records, noted.wait_ns.tolist(), strict=True
        ):
            if at >= 0:
                of_span.setdefault(at, []).append((record, wait_ns))
    attributes: dict[int, dict[Attribute, AttributeValue]] = {}
    spans: dict[int, Span] = {}
    for explains, of_span in by_signal.items():
        for at, records in of_span.items():
            span = spans.setdefault(at, Span())
            if explains.event is not None:
                events = (_event(explains, explains.event, *record, unix_offset_ns) for record in records)
                span.events.extend(events)
            attributes.setdefault(at, {}).update(explains.attributes(np.array([record for record, _ in records])))
    resent = np.zeros(len(number), np.bool_)
    for at, of_one in attributes.items():
        fill(spans[at].attributes, of_one)
        resent[at] = names.RETRANSMITS in of_one
    table = [span.SerializeToString() for span in spans.values()]
    return Explained(pick(table, np.arange(len(table)), np.fromiter(spans, np.intp, len(spans))), resent)


def _event(explains: Explains, name: str, record: np.void, wait_ns: int, unix_offset_ns: int) -> Span.Event:
    event = Span.Event(name=name, time_unix_nano=int(record["flow"]["boot_ns"]) + unix_offset_ns)
    fill(event.attributes, explains.fields(record))
    if explains.waits:
        fill(event.attributes, {names.WAIT: wait_ns / 1e9})
    return event
