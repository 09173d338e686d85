"""Stages as child spans, which make a picture of an RPC: whose stages are shown how, and the bytes of the children.

A child is of one length by its stage, so it is one piece: an example that opentelemetry's own messages wrote, with
columns in the places of its ids and times. Which stages are drawn: docs/design/telemetry.md, "Stages".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from latencyprobe.stages import WAIT, StagesAs
from latencyprobe_agent.measure.keys import span_ids
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import CLIENT_STAGES, SERVER_STAGES
from latencyprobe_agent.telemetry.ragged import Piece
from latencyprobe_agent.telemetry.span_rows import AS_EVENTS, AS_SPANS, NOT_JOINED, taken
from latencyprobe_agent.vocabulary.records import Role

_CODES = {stages: code for code, stages in enumerate(StagesAs)}
_IS_DRAWN = np.isin(list(Reason), (Reason.ERROR, Reason.SLOW, Reason.OTHER_HALF))  # by Reason
_FLAGS = 0x101  # sampled; the parent is known to be no remote one
# what stands in an example in the places of the columns: 16 bytes for the trace id, 8 for parent, id, start and end
_TRACE_ID, *_MARKS = (bytes(range(first, first + 8)) for first in range(0xC0, 0xE8, 8))


def shown_as(policies: Sequence[StagesAs], of_row: NDArray[np.intp], reason: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return how each of n halves shows its stages, by its policy, `policies[of_row]`, and why it was sampled."""
    code = np.array([_CODES[policy] for policy in policies], np.uint8)[of_row]
    code[(code == AS_SPANS) & ~_IS_DRAWN[reason]] = AS_EVENTS
    return code


class Children(NamedTuple):
    """`columns`: what follows each of n spans. `counts`: how many child spans that are, of each."""

    columns: list[list[Piece]]
    counts: NDArray[np.intp]


def children(rows: NDArray[np.void], unix_offset_ns: int) -> Children:
    """Return the child spans of ROW[n]: of those that are drawn, the half's own stages that took any time.

    The client half of a pair has no `wait`: in its place stands the server's span.
    """
    counts = np.zeros(len(rows), np.intp)
    at = np.flatnonzero(rows["stages_as"] == AS_SPANS)
    if not len(at):
        return Children([], counts)
    some = taken(rows, at)
    server, joined = some["role"] == Role.SERVER, some["joined"] != NOT_JOINED
    high, low = some["trace_id"].T
    half = np.where(server, low, high)
    points = np.empty((5, len(at)), "<i8")
    points[0] = some["start_ns"] + unix_offset_ns
    points[1:] = points[0] + np.cumsum(some["stages"], axis=1).T
    common = [some["trace_id"].astype(">u8").view("V16").ravel(), span_ids(half).astype(">u8").view("V8")]
    columns = []
    for i, layouts in enumerate(_LAYOUTS):
        times = [point.view("V8") for point in points[i : i + 2]]
        own = span_ids(half, 1 + i).astype(">u8").view("V8")
        drawn = some["stages"][:, i] > 0
        if i == _WAIT:
            drawn &= server | ~joined
        counts[at] += drawn
        values = [*common, own, *times]
        sides = zip(layouts, (server, ~server), strict=True)
        columns.append([layout.piece(at, drawn & of_side, values) for layout, of_side in sides])
    return Children(columns, counts)


class _Layout:
    """A stage as the child span of a half."""

    def __init__(self, stage: str) -> None:
        parent, own, start, end = _MARKS
        child = Span(
            trace_id=_TRACE_ID * 2,
            parent_span_id=parent,
            span_id=own,
            flags=_FLAGS,
            name=stage,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=int.from_bytes(start, "little"),
            end_time_unix_nano=int.from_bytes(end, "little"),
        )
        image = ScopeSpans(spans=[child]).SerializeToString()
        marks = (_TRACE_ID * 2, *_MARKS)
        self._image = np.void(image)
        self._columns = np.dtype(
            {
                "names": [str(i) for i in range(len(marks))],
                "formats": [f"V{len(mark)}" for mark in marks],
                "offsets": [image.index(mark) for mark in marks],
                "itemsize": len(image),
            }
        )

    def piece(self, at: NDArray[np.intp], drawn: NDArray[np.bool_], values: Sequence[NDArray[np.void]]) -> Piece:
        """Return the children of the spans `at` that are drawn, from the columns of all."""
        which = np.flatnonzero(drawn)
        whole = np.full(len(which), self._image)
        columns = whole.view(self._columns)
        for i, column in enumerate(values):
            columns[str(i)] = column[which]
        return Piece(at[which], whole)


_WAIT = CLIENT_STAGES.index(WAIT.name)
_LAYOUTS = [tuple(map(_Layout, both)) for both in zip(SERVER_STAGES, CLIENT_STAGES, strict=True)]
