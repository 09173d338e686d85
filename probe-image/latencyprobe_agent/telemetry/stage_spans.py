"""Stages as child spans, which make a picture of an RPC: whose stages are shown how, and the bytes of the children.

A child is of one length by its name, so it is one piece: words and numbers of an example that opentelemetry's own
messages wrote, with columns in the places of the ids and times. Which stages are drawn: docs/design/telemetry.md,
"Stages".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from latencyprobe.stages import WAIT, StagesAs
from latencyprobe_agent.measure.keys import child_span_ids, span_ids
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import CLIENT_STAGES, SERVER_STAGES
from latencyprobe_agent.telemetry.ragged import Piece
from latencyprobe_agent.telemetry.span_rows import AS_EVENTS, AS_SPANS, NOT_JOINED, taken
from latencyprobe_agent.telemetry.wire import head
from latencyprobe_agent.vocabulary.records import Role

_CODES = {stages: code for code, stages in enumerate(StagesAs)}
_IS_DRAWN = np.isin(list(Reason), (Reason.ERROR, Reason.SLOW, Reason.OTHER_HALF))  # by Reason
_FLAGS = 0x101  # sampled; the parent is known to be no remote one


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
    numbers = np.full((_STAGES, len(at)), np.void(_IMAGE))
    columns, ends = numbers.view(_NUMBERS), some["start_ns"] + unix_offset_ns + np.cumsum(some["stages"], axis=1).T
    columns["trace_id"], columns["parent"] = some["trace_id"], span_ids(half)
    columns["own"] = child_span_ids(half, _STAGES)
    columns["start"], columns["end"] = ends - some["stages"].T, ends
    drawn = some["stages"].T > 0
    drawn[_WAIT] &= server | ~joined
    counts[at] = drawn.sum(axis=0)
    found = []
    for images, of_stage, shown in zip(_WHOLE, numbers, drawn, strict=True):
        pieces = []
        for image, of_side in zip(images, (server, ~server), strict=True):
            which = np.flatnonzero(shown & of_side)
            whole = np.full(len(which), image)
            whole["numbers"] = of_stage[which]
            pieces.append(Piece(at[which], whole.view(f"V{image.itemsize}")))
        found.append(pieces)
    return Children(found, counts)


def _whole(stage: str) -> NDArray[np.void]:
    """Return one child span of this name with its head, as it follows its parent in a message of many."""
    words = Span(name=stage, kind=Span.SPAN_KIND_INTERNAL, flags=_FLAGS).SerializeToString()
    before = head(ScopeSpans.SPANS_FIELD_NUMBER, len(words) + len(_IMAGE)) + words
    return np.array([(before, _IMAGE)], [("words", f"V{len(before)}"), ("numbers", f"V{len(_IMAGE)}")])


_TRACE_ID, *_MARKS = (bytes(range(first, first + 8)) for first in range(0xC0, 0xE8, 8))  # places of columns
_PARENT, _OWN, _START, _END = _MARKS
_IMAGE: bytes = Span(
    trace_id=_TRACE_ID * 2,
    parent_span_id=_PARENT,
    span_id=_OWN,
    start_time_unix_nano=int.from_bytes(_START, "little"),
    end_time_unix_nano=int.from_bytes(_END, "little"),
).SerializeToString()
_NUMBERS = np.dtype(
    {
        "names": ["trace_id", "parent", "own", "start", "end"],
        "formats": ["(2,)>u8", ">u8", ">u8", "<i8", "<i8"],
        "offsets": [_IMAGE.index(mark) for mark in (_TRACE_ID * 2, *_MARKS)],
        "itemsize": len(_IMAGE),
    }
)
_STAGES = len(SERVER_STAGES)
_WAIT = CLIENT_STAGES.index(WAIT.name)
_WHOLE = [(_whole(server), _whole(client)) for server, client in zip(SERVER_STAGES, CLIENT_STAGES, strict=True)]
