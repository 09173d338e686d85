"""What evidence adds to the few spans that it explains: attributes of the span, and an event for each record.

The kernel's functions are named here and no earlier: a stack that no span shows needs no names.
"""

from collections.abc import Callable, Iterable, Sequence
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

_STACK_LENGTH = 2000  # characters
_UNKNOWN = "[unknown]"

Names = Callable[[Iterable[int]], Sequence[str]]


class Explained(NamedTuple):
    """`pieces`: what the spans with evidence say of it. `resent`: bool of each span, it says how often segments were
    sent again, which the span then need not."""

    pieces: list[Piece]
    resent: NDArray[np.bool_]


def explained(
    number: NDArray[np.uint64], evidence: Sequence[Noted], unix_offset_ns: int, kernel_names: Names
) -> Explained:
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
        for at, noted_of_span in of_span.items():
            records = np.array([record for record, _ in noted_of_span])
            waits = np.array([wait_ns for _, wait_ns in noted_of_span], np.int64)
            span = spans.setdefault(at, Span())
            if explains.event is not None:
                for row in explains.shown(records, waits).tolist():
                    event = _event(explains, explains.event, records[row], int(waits[row]), unix_offset_ns)
                    _name_stack(event, explains, records[row], kernel_names)
                    span.events.append(event)
            attributes.setdefault(at, {}).update(explains.attributes(records))
    resent = np.zeros(len(number), np.bool_)
    for at, of_one in attributes.items():
        fill(spans[at].attributes, of_one)
        resent[at] = names.RETRANSMITS in of_one
    table = [span.SerializeToString() for span in spans.values()]
    return Explained(pick(table, np.arange(len(table)), np.fromiter(spans, np.intp, len(spans))), resent)


def _event(explains: Explains, name: str, record: np.void, wait_ns: int, unix_offset_ns: int) -> Span.Event:
    event = Span.Event(name=name, time_unix_nano=int(record["flow"]["boot_ns"]) + unix_offset_ns)
    fill(event.attributes, explains.fields(record))
    if explains.knows_cost:
        fill(event.attributes, {names.WAIT: wait_ns / 1e9})
    return event


def _name_stack(event: Span.Event, explains: Explains, record: np.void, kernel_names: Names) -> None:
    if explains.stack:
        addresses, truncated = explains.stack(record)
        functions = kernel_names(addresses.tolist())
        if any(function != _UNKNOWN for function in functions):  # else the kernel hides them
            fill(event.attributes, {names.WAIT_STACK: fold(functions, truncated=truncated)})


def fold(functions: Sequence[str], *, truncated: bool) -> str:
    """Return a stack (innermost first) as one line, outermost first, separated by `;`. `…` stands for outer functions
    that are not known, or for which there is no room."""
    text, used = [], 0
    for function in functions:
        used += len(function) + 1
        if used > _STACK_LENGTH:
            truncated = True
            break
        text.append(function)
    return ";".join([*(["…"] if truncated else []), *reversed(text)])
