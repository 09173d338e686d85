"""What evidence adds to the few spans that it explains: attributes of the span, and an event for each record.

Functions are named for spans and no earlier: a stack that no span shows needs no names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.text import UNKNOWN, frame
from latencyprobe_agent.signals.evidence import Explains, Stack
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.telemetry.matching import find
from latencyprobe_agent.telemetry.ragged import Piece, pick
from latencyprobe_agent.telemetry.span_rows import Noted
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue

_STACK_LENGTH = 2000  # characters


def _unnamed(addresses: Iterable[int]) -> list[str]:
    return [f"{address:#x}" for address in addresses]


class Names(NamedTuple):
    """Functions of stacks, innermost first. `kernel`: by address, at once; `user`: of a stack with a `tgid`, which may
    take long, none where nobody knows them. By default nobody knows any."""

    kernel: Callable[[Iterable[int]], Sequence[str]] = _unnamed
    user: Callable[[Stack], Sequence[str]] = lambda _: ()


class Explained(NamedTuple):
    """`pieces`: what the spans with evidence say of it. `resent`: bool of each span, it says how often segments were
    sent again, which the span then need not."""

    pieces: list[Piece]
    resent: NDArray[np.bool_]


def explained(number: NDArray[np.uint64], evidence: Sequence[Noted], unix_offset_ns: int, naming: Names) -> Explained:
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
                    _name_stacks(event, explains.stacks(records[row]), naming)
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


def user_stacks(evidence: Iterable[Noted]) -> Iterator[tuple[int, Stack]]:
    """Yield the stacks of programs among the records, each with the number of the span that it explains."""
    for noted in evidence:
        for number, record in zip(noted.number.tolist(), noted.records, strict=True):
            yield from ((number, stack) for stack in noted.explains.stacks(record) if stack.tgid and stack.addresses)


def _name_stacks(event: Span.Event, stacks: Iterable[Stack], naming: Names) -> None:
    for stack in stacks:
        functions = naming.user(stack) if stack.tgid else naming.kernel(stack.addresses)
        if stack.tgid and not stack.whole:
            functions = _believable(functions)
        if all(function == UNKNOWN for function in functions):  # the kernel hides them, or nobody has looked
            continue
        whole = stack.whole and not (stack.tgid and UNKNOWN in functions)
        fill(event.attributes, {stack.attribute: fold(functions, truncated=not whole)})
        if stack.told_whole:
            fill(event.attributes, {stack.told_whole: whole})


def _believable(functions: Sequence[str]) -> Sequence[str]:
    """Return the inner functions of a stack that leads nowhere: what lies in no file came of no frame pointer."""
    outside = (at for at, function in enumerate(functions) if at and function == UNKNOWN)
    return functions[: next(outside, len(functions))]


def fold(functions: Sequence[str], *, truncated: bool) -> str:
    """Return a stack (innermost first) as one line, outermost first, separated by `;`. `…` stands for outer functions
    that are not known, or for which there is no room."""
    text, used = [], 0
    for function in functions:
        used += len(function) + 1
        if used > _STACK_LENGTH:
            truncated = True
            break
        text.append(frame(function))
    return ";".join([*(["…"] if truncated else []), *reversed(text)])
