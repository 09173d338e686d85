"""Packing: the sparse parts of a row as one small blob (msgpack), so that an objective-minute takes 200 to 260 B. Pure.

`sqlite.py` writes and merges these blobs; what has to be summed or compared by SQL stands in columns instead. Adding up
never fails: a blob with a count of MAX_SUM, which no honest one reaches, is added to no more, and a sum of ns beyond 64
bits is kept as a float (5,000 nodes on which 22 bad exchanges are under way all day spend 300 years in it).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from latencyprobe import exclusions, pressure, stages
from latencyprobe.bounds import MAX_NS, MAX_SUM, MAX_SUM_NS
from latencyprobe.causes import folded
from latencyprobe.sli import (
    HISTOGRAM_INDEXES,
    EvidenceCount,
    PressureTime,
    SlowExchange,
    added,
    added_evidence,
    added_pressure,
    most,
    slowest,
)
from latencyprobe.wire import UNREADABLE

_CODES: dict[str, int | str] = {stage.name: stage.code for stage in stages.BY_NAME.values()}
_NAMES = {code: name for name, code in _CODES.items()}  # a name without a code is stored as it is
_REASON_CODES: dict[str, int | str] = {exclusion.name: exclusion.code for exclusion in exclusions.ALL}
_REASONS = {code: name for name, code in _REASON_CODES.items()}
_KIND_CODES = {kind.name: kind.code for kind in pressure.ALL}
_KINDS = {code: name for name, code in _KIND_CODES.items()}
T = TypeVar("T")


class Unreadable(ValueError):  # noqa: N818 - what the blob is
    """A blob is damaged, or holds what is above its bounds."""


class Detail(msgspec.Struct, frozen=True, array_like=True):
    """Of one row: counts by histogram bucket; of bad events each stage's sum in ns and how many it dominated; what
    signals explain; exclusions by reason; turns whose record was sampled out; what held up containers, by kind; what
    `process` of bad events went to, ns by cause."""

    histogram: dict[int, int] = {}
    stage_ns: dict[str, int] = {}
    dominant: dict[str, int] = {}
    evidence: dict[str, EvidenceCount] = {}
    exclusions: dict[str, int] = {}
    sampled_out: int = 0
    pressure: dict[str, PressureTime] = {}
    cause_ns: dict[str, int] = {}


class Exemplars(msgspec.Struct, frozen=True, array_like=True):
    """Of one row: the slowest exchanges, slowest first, bad events by peer, and ns that servers waited by peer."""

    slowest: tuple[SlowExchange, ...] = ()
    peers: dict[str, int] = {}
    waited_ns: dict[str, int] = {}


class _Explained(msgspec.Struct, frozen=True, array_like=True):
    exchanges: int
    bad: int
    wait_ns: int | float
    lost: int = 0


# The histogram: first bucket's index, then counts in order, where -n stands for n empty buckets: mostly one byte each.
# Of pressure: time looked at, that of seconds with bad ones, and of these by kind; mostly all kinds share the two.
_Us = int | float
_Held = list[tuple[_Us, _Us, dict[int, tuple[_Us, _Us]]]]


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    dense: list[int]
    stages: dict[int | str, tuple[int | float, int]] = {}
    evidence: dict[str, _Explained] = {}
    exclusions: dict[int | str, int] = {}
    sampled_out: int = 0
    pressure: _Held = []
    cause_ns: dict[str, int | float] = {}


_detail = msgspec.msgpack.Decoder(_Packed)
_exemplars = msgspec.msgpack.Decoder(Exemplars)


def pack_detail(detail: Detail) -> bytes:
    """Return the blob of a row's detail, empty for nothing."""
    dense: list[int] = []
    expected = None
    for index, count in sorted(item for item in detail.histogram.items() if item[1]):
        if expected is None:
            dense.append(index)
        elif index > expected:
            dense.append(expected - index)
        dense.append(count)
        expected = index + 1
    by_stage = {
        _CODES.get(name, name): (_in_64_bits(detail.stage_ns.get(name, 0)), detail.dominant.get(name, 0))
        for name in {**detail.stage_ns, **detail.dominant}
    }
    evidence = {
        name: _Explained(n.exchanges, n.bad, _in_64_bits(n.wait_ns), n.lost) for name, n in detail.evidence.items()
    }
    reasons = {_REASON_CODES.get(name, name): n for name, n in detail.exclusions.items() if n}
    causes = {name: _in_64_bits(ns) for name, ns in detail.cause_ns.items() if ns}
    parts = [dense, by_stage, evidence, reasons, detail.sampled_out, _pack_pressure(detail.pressure), causes]
    while parts and not parts[-1]:  # most rows have no evidence and nothing sampled out, many no exclusions
        parts.pop()
    return msgspec.msgpack.encode(parts) if parts else b""


def summed(blobs: Iterable[bytes]) -> Detail:
    """Return the sum of what `pack_detail` packed; a window has hundreds. Raises Unreadable where one cannot be."""
    histogram, parts = _Histogram(), []
    for blob in filter(None, blobs):
        packed = _decoded(_detail, blob)
        histogram.add(packed.dense)
        parts.append(_unpacked(packed))
    return replace(joined(parts), histogram=histogram.total())


def joined(parts: Sequence[Detail]) -> Detail:
    """Return the sum of details."""
    return Detail(
        added(*(part.histogram for part in parts)),
        added(*(part.stage_ns for part in parts)),
        added(*(part.dominant for part in parts)),
        added_evidence(*(part.evidence for part in parts)),
        added(*(part.exclusions for part in parts)),
        sum(part.sampled_out for part in parts),
        added_pressure(*(part.pressure for part in parts)),
        added(*(part.cause_ns for part in parts)),
    )


class _Histogram:
    """The sum of histograms, added as they are unpacked: they are most of a blob, and this most of a report's time."""

    def __init__(self) -> None:
        self._counts = [0] * len(HISTOGRAM_INDEXES)
        self._low, self._high = len(HISTOGRAM_INDEXES), 0

    def add(self, dense: list[int]) -> None:
        if not dense:
            return
        total, first, rest = self._counts, HISTOGRAM_INDEXES.start, iter(dense)
        begin = at = next(rest) - first
        try:
            for count in rest:
                if count > 0:
                    total[at] += count
                    at += 1
                else:
                    at -= count
        except IndexError:
            at += 1
        if begin < 0 or at > len(total):
            raise Unreadable(f"histogram: there is no bucket {first + (begin if begin < 0 else at - 1)}")
        _check("histogram", (max(dense),))
        self._low, self._high = min(self._low, begin), max(self._high, at)

    def total(self) -> dict[int, int]:
        low, first = self._low, HISTOGRAM_INDEXES.start
        return {first + i: count for i, count in enumerate(self._counts[low : self._high], low) if count}


def _unpacked(packed: _Packed) -> Detail:
    """Return all but the histogram."""
    try:
        by_stage = {_NAMES[code] if isinstance(code, int) else code: sums for code, sums in packed.stages.items()}
        stage_ns = {name: int(total_ns) for name, (total_ns, _) in by_stage.items() if total_ns}
        evidence = {
            name: EvidenceCount(n.exchanges, n.bad, int(n.wait_ns), n.lost) for name, n in packed.evidence.items()
        }
        reasons = {_REASONS[code] if isinstance(code, int) else code: n for code, n in packed.exclusions.items()}
        held = _unpack_pressure(packed.pressure)
        cause_ns = {name: int(ns) for name, ns in packed.cause_ns.items()}
    except (KeyError, OverflowError, ValueError) as error:
        raise Unreadable(f"stages, evidence, pressure, causes or exclusions: {error}") from error
    dominant = {name: count for name, (_, count) in by_stage.items() if count}
    _check("dominant", dominant.values())
    _check("evidence", [count for n in evidence.values() for count in (n.exchanges, n.bad, n.lost)])
    _check("exclusions", reasons.values())
    _check("sampled_out", (packed.sampled_out,))
    return Detail({}, stage_ns, dominant, evidence, reasons, packed.sampled_out, held, cause_ns)


def add_details(one: bytes, other: bytes) -> bytes:
    """Add up two blobs; SQLite calls it where a row is already there. What cannot be read stays, for readers to see."""
    try:
        total = summed((one, other))
    except Unreadable:
        return one
    return pack_detail(replace(total, cause_ns=folded(total.cause_ns)))


def pack_exemplars(exemplars: Exemplars) -> bytes:
    """Return the blob of the slowest exchanges and the peers, bounded."""
    waited_ns = {peer: max(0, min(ns, MAX_SUM_NS)) for peer, ns in most(exemplars.waited_ns).items()}
    parts = [tuple(map(_bounded, slowest(exemplars.slowest))), most(exemplars.peers), waited_ns]
    return msgspec.msgpack.encode(parts if waited_ns else parts[:-1])


def unpack_exemplars(blob: bytes) -> Exemplars:
    """Return what `pack_exemplars` packed. Raises Unreadable."""
    exemplars = _decoded(_exemplars, blob)
    _check("peers", exemplars.peers.values())
    _check("slowest", [hit.count for slow in exemplars.slowest for hit in slow.evidence])
    _check("slowest", [one.calls for slow in exemplars.slowest for one in slow.waited_for])
    return exemplars


def add_exemplars(one: bytes, other: bytes) -> bytes:
    """Join two blobs and keep the slowest and the most frequent; SQLite calls it where a row is already there."""
    try:
        a, b = unpack_exemplars(one), unpack_exemplars(other)
    except Unreadable:
        return one
    return pack_exemplars(Exemplars(a.slowest + b.slowest, added(a.peers, b.peers), added(a.waited_ns, b.waited_ns)))


def _pack_pressure(times: Mapping[str, PressureTime]) -> _Held:
    groups: dict[tuple[_Us, _Us], dict[int, tuple[_Us, _Us]]] = {}
    for kind, time in times.items():
        group = groups.setdefault((_in_64_bits(time.of_us), _in_64_bits(time.bad_of_us)), {})
        group[_KIND_CODES[kind]] = _in_64_bits(time.us), _in_64_bits(time.bad_us)
    return [(*looked_at, of_kinds) for looked_at, of_kinds in groups.items()]


def _unpack_pressure(held: _Held) -> dict[str, PressureTime]:
    return {
        _KINDS[code]: PressureTime(int(us), int(of_us), int(bad_us), int(bad_of_us))
        for of_us, bad_of_us, of_kinds in held
        for code, (us, bad_us) in of_kinds.items()
    }


def _bounded(slow: SlowExchange) -> SlowExchange:
    hits = (replace(hit, wait_ns=min(hit.wait_ns, MAX_NS)) for hit in slow.evidence)
    return replace(slow, evidence=tuple(hits)) if slow.evidence else slow


def _in_64_bits(n: int) -> int | float:
    return n if -(1 << 63) <= n < 1 << 63 else float(n)


def _check(name: str, counts: Collection[int]) -> None:
    """Refuse sums that no honest counts come to."""
    for n in (min(counts), max(counts)) if counts else ():
        if abs(n) >= MAX_SUM:
            raise Unreadable(f"{name}: {n} events are more than can be")


def _decoded(decoder: msgspec.msgpack.Decoder[T], blob: bytes) -> T:
    try:
        return decoder.decode(blob)
    except (*UNREADABLE, TypeError) as error:  # TypeError: no blob at all
        raise Unreadable(str(error)) from error
