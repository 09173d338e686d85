"""What of a span is a number: ids, times, and the attributes of `NUMBERS`, written column by column.

Those that a span has on one condition are a layout: the bytes of an example, made by opentelemetry's own messages, with
the columns in the places of its values. Integers take as many bytes as the widest of their kind: protobuf allows zeros
in front.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.measure.keys import span_ids
from latencyprobe_agent.measure.stages import CLIENT_STAGES, PAIR_STAGES, SERVER_STAGES
from latencyprobe_agent.telemetry.ragged import Piece
from latencyprobe_agent.telemetry.span_rows import AS_EVENTS, NOT_JOINED
from latencyprobe_agent.telemetry.wire import varints
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute
from latencyprobe_agent.vocabulary.records import Role

_NO_RTT_MIN = 0xFFFFFFFF
_HEX_DIGITS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), "V2")
# the place of a column's value in an example: bytes that are a double, a fixed64 and a varint all the same
_MARK = b"\xc1\xd2\xe3\xf4\x95\xa6\xb7\x58"
_SHORT_MARK = b"\xc1\xd2\xe3\x58"
_MARK_NS = int.from_bytes(_MARK, "little")
_HEX_MARK = "0123456789abcdef" * 2


@dataclass(frozen=True)
class Spans:
    """n spans: ROW[n]. `parent`: bool[n], the parent is named; `resent`: bool[n], evidence says how often segments were
    sent again."""

    rows: NDArray[np.void]
    unix_offset_ns: int
    parent: NDArray[np.bool_]
    resent: NDArray[np.bool_]

    @cached_property
    def cuts_ns(self) -> NDArray[np.int64]:
        """i64[5, n]: Unix time at which each stage begins; where a fifth would begin is the end."""
        start_ns = self.rows["start_ns"] + self.unix_offset_ns
        return np.vstack([start_ns, start_ns + np.cumsum(self.rows["stages"].T, axis=0)])

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return one column of `rows`."""
        column: NDArray[Any] = self.rows[name]
        return column


Column = Callable[[Spans], NDArray[Any]]


class Number(NamedTuple):
    """One field of a span, or one attribute. `example`: a span with nothing but it, and `mark` in the value's place.

    `values`: of all spans, as many bytes each as `mark`; `where`: which spans have it, None: all.
    """

    example: Span
    mark: bytes
    values: Column
    where: Column | None = None


def seconds(attribute: Attribute, values: Column, where: Column | None = None) -> Number:
    """Return an attribute whose value is a floating point number."""
    (mark,) = struct.unpack("<d", _MARK)
    return Number(
        _with(attribute, AnyValue(double_value=mark)), _MARK, lambda spans: values(spans).astype("<f8"), where
    )


def integer(attribute: Attribute, values: Column, where: Column | None = None, mark: bytes = _MARK) -> Number:
    """Return an attribute whose value is an integer from 0 to 2^56 - 1; 2^28 - 1 with the short mark."""
    value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(mark))
    example = _with(attribute, AnyValue(int_value=value))
    return Number(example, mark, lambda spans: varints(values(spans), len(mark)), where)


def _with(attribute: Attribute, value: AnyValue) -> Span:
    return Span(attributes=[KeyValue(key=attribute, value=value)])


def _event(stage: int, stages: Sequence[str], where: Column) -> Number:
    name = names.stage_attribute(stages[stage])
    return Number(Span(events=[Span.Event(time_unix_nano=_MARK_NS, name=name)]), _MARK, _start_of(stage), where)


def _duration(stage: int, stages: Sequence[str], where: Column, field: str = "stages") -> Number:
    return seconds(names.stage_attribute(stages[stage]), lambda spans: spans[field][:, stage] / 1e9, where)


def _start_of(stage: int) -> Column:
    return lambda spans: spans.cuts_ns[stage].astype("<i8")


def _field(name: str) -> Column:
    return lambda spans: spans[name]


def _has(name: str, nothing: int = 0) -> Column:
    return lambda spans: spans[name] != nothing


def _server(spans: Spans) -> Any:
    return spans["role"] == Role.SERVER


def _client(spans: Spans) -> Any:
    return spans["role"] != Role.SERVER


def _server_events(spans: Spans) -> Any:
    return _server(spans) & (spans["stages_as"] == AS_EVENTS)


def _client_events(spans: Spans) -> Any:
    return _client(spans) & (spans["stages_as"] == AS_EVENTS)


def _joined_client(spans: Spans) -> Any:
    return _client(spans) & (spans["joined"] != NOT_JOINED)


def _with_excess(spans: Spans) -> Any:
    return (spans["joined"] != NOT_JOINED) & ~np.isnan(spans["excess_ns"])


def _retransmits(spans: Spans) -> Any:
    return (spans["retransmits"] != 0) & ~spans.resent


def _trace_id(spans: Spans) -> NDArray[Any]:
    return np.ascontiguousarray(spans["trace_id"].astype(">u8")).view("V16").ravel()


def _span_id(spans: Spans) -> NDArray[Any]:
    high, low = spans["trace_id"].T
    return span_ids(np.where(_server(spans), low, high)).astype(">u8")


def _parent_span_id(spans: Spans) -> NDArray[Any]:
    return span_ids(spans["trace_id"][:, 0]).astype(">u8")


def _pair_key(spans: Spans) -> NDArray[Any]:
    return _HEX_DIGITS[_trace_id(spans).view(np.uint8)].view("V32")


def _server_port(spans: Spans) -> NDArray[Any]:
    return np.where(_server(spans), spans["local_port"], spans["peer_port"])


NUMBERS = (
    Number(Span(trace_id=_MARK * 2), _MARK * 2, _trace_id),
    Number(Span(span_id=_MARK), _MARK, _span_id),
    Number(Span(parent_span_id=_MARK), _MARK, _parent_span_id, lambda spans: spans.parent),
    Number(Span(start_time_unix_nano=_MARK_NS), _MARK, _start_of(0)),
    Number(Span(end_time_unix_nano=_MARK_NS), _MARK, _start_of(4)),
    *(_event(i, SERVER_STAGES, _server_events) for i in range(1, 4)),
    *(_event(i, CLIENT_STAGES, _client_events) for i in range(1, 4)),
    integer(names.NETWORK_PEER_PORT, _field("peer_port"), mark=_SHORT_MARK),
    integer(names.SERVER_PORT, _server_port, mark=_SHORT_MARK),
    integer(names.CLIENT_PORT, _field("peer_port"), _server, mark=_SHORT_MARK),
    Number(_with(names.PAIR_KEY, AnyValue(string_value=_HEX_MARK)), _HEX_MARK.encode(), _pair_key),
    integer(names.STREAM_ID, _field("stream_id"), _has("stream_id")),
    seconds(names.FIRST_ANSWER, lambda spans: spans["first_answer_ns"] / 1e9, _has("first_answer_ns")),
    integer(names.REQUEST_SIZE, _field("request_bytes")),
    integer(names.RESPONSE_SIZE, _field("response_bytes")),
    *(_duration(i, SERVER_STAGES, _server) for i in range(4)),
    *(_duration(i, CLIENT_STAGES, _client) for i in range(4)),
    *(_duration(i, PAIR_STAGES, _joined_client, "pair_stages") for i in range(len(PAIR_STAGES))),
    seconds(names.RTT, lambda spans: spans["srtt_us"] / 1e6, _has("srtt_us")),
    seconds(names.RTT_MIN, lambda spans: spans["rtt_min_us"] / 1e6, _has("rtt_min_us", _NO_RTT_MIN)),
    integer(names.RETRANSMITS, _field("retransmits"), _retransmits),
    seconds(names.SAMPLED_RATIO, _field("ratio")),
    seconds(names.NETWORK_EXCESS, lambda spans: spans["excess_ns"] / 1e9, _with_excess),
)


class _Layout:
    """The numbers of one condition, side by side."""

    def __init__(self, where: Column | None) -> None:
        self.where = where
        self._numbers = [number for number in NUMBERS if number.where is where]
        parts = [(number.example.SerializeToString(), number.mark) for number in self._numbers]
        starts = accumulate((len(part) for part, _ in parts), initial=0)
        self._image = np.void(b"".join(part for part, _ in parts))
        self._columns = np.dtype(
            {
                "names": [str(i) for i in range(len(parts))],
                "formats": [f"V{len(mark)}" for _, mark in parts],
                "offsets": [start + part.index(mark) for start, (part, mark) in zip(starts, parts, strict=False)],
                "itemsize": self._image.itemsize,
            }
        )

    def pieces(self, spans: Spans) -> list[Piece]:
        """Return what each span has of it."""
        count = len(spans.rows)
        at = np.arange(count) if self.where is None else np.flatnonzero(self.where(spans))
        if not len(at):
            return []
        whole = np.full(len(at), self._image)
        columns = whole.view(self._columns)
        for i, number in enumerate(self._numbers):
            values = number.values(spans).view(f"V{len(number.mark)}")
            columns[str(i)] = values if len(at) == count else values[at]
        return [Piece(at, whole)]


_LAYOUTS = [_Layout(where) for where in dict.fromkeys(number.where for number in NUMBERS)]


def columns(spans: Spans) -> list[list[Piece]]:
    """Return the numbers of each span."""
    return [layout.pieces(spans) for layout in _LAYOUTS]
