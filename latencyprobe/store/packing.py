"""Packing: the sparse parts of a row as one small blob (msgpack), so that an objective-minute takes ≤ 200 B. Pure.

`sqlite.py` writes and merges these blobs; what has to be summed or compared by SQL stands in columns instead. Adding up
never fails: a blob with a count of MAX_SUM, which no honest one reaches, is added to no more, and a sum of ns beyond 64
bits is kept as a float (5,000 nodes on which 22 bad exchanges are under way all day spend 300 years in it).
"""

from collections.abc import Collection
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from latencyprobe.bounds import MAX_NS, MAX_SUM
from latencyprobe.sli import (
    HISTOGRAM_INDEXES,
    STAGES,
    EvidenceCount,
    SlowExchange,
    added,
    added_evidence,
    most,
    slowest,
)

_CODES: dict[str, int | str] = {name: i for i, name in enumerate(STAGES)}  # unknown names are stored as they are
T = TypeVar("T")


class Unreadable(ValueError):  # noqa: N818 - what the blob is
    """A blob is damaged, or holds what is above its bounds."""


class Detail(msgspec.Struct, frozen=True, array_like=True):
    """Of one row: counts by histogram bucket; of bad events each stage's sum in ns and how many it dominated; what
    signals explain."""

    histogram: dict[int, int] = {}
    stage_ns: dict[str, int] = {}
    dominant: dict[str, int] = {}
    evidence: dict[str, EvidenceCount] = {}


class Witnesses(msgspec.Struct, frozen=True, array_like=True):
    """Of one row: the slowest exchanges, slowest first, and bad events by peer."""

    slowest: tuple[SlowExchange, ...] = ()
    peers: dict[str, int] = {}


# The histogram: first bucket's index, then counts in order, where -n stands for n empty buckets: mostly one byte each.
class _Packed(msgspec.Struct, frozen=True, array_like=True):
    dense: list[int]
    stages: dict[int | str, tuple[int | float, int]]
    evidence: dict[str, tuple[int, int, int | float]] = {}


_detail = msgspec.msgpack.Decoder(_Packed)
_witnesses = msgspec.msgpack.Decoder(Witnesses)


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
    stages = {
        _CODES.get(name, name): (_ns(detail.stage_ns.get(name, 0)), detail.dominant.get(name, 0))
        for name in {**detail.stage_ns, **detail.dominant}
    }
    if not dense and not stages and not detail.evidence:
        return b""
    evidence = {name: (n.exchanges, n.bad, _ns(n.wait_ns)) for name, n in detail.evidence.items()}
    return msgspec.msgpack.encode((dense, stages, evidence) if evidence else (dense, stages))  # most rows have none


def unpack_detail(blob: bytes) -> Detail:
    """Return what `pack_detail` packed. Raises Unreadable."""
    if not blob:
        return Detail()
    packed = _decoded(_detail, blob)
    dense, coded = packed.dense, packed.stages
    histogram = {}
    index = dense[0] if dense else 0
    for count in dense[1:]:
        if count > 0:
            histogram[index] = count
        index += 1 if count > 0 else -count
    try:
        stages = {STAGES[code] if isinstance(code, int) else code: sums for code, sums in coded.items()}
        stage_ns = {name: int(total_ns) for name, (total_ns, _) in stages.items() if total_ns}
        evidence = {name: EvidenceCount(n, bad, int(wait_ns)) for name, (n, bad, wait_ns) in packed.evidence.items()}
    except (IndexError, OverflowError, ValueError) as error:
        raise Unreadable(f"stages: {error}") from error
    dominant = {name: count for name, (_, count) in stages.items() if count}
    for bucket in (min(histogram), max(histogram)) if histogram else ():
        if bucket not in HISTOGRAM_INDEXES:
            raise Unreadable(f"histogram: there is no bucket {bucket}")
    _check("histogram", histogram.values())
    _check("dominant", dominant.values())
    _check("evidence", [count for n in evidence.values() for count in (n.exchanges, n.bad)])
    return Detail(histogram, stage_ns, dominant, evidence)


def add_details(one: bytes, other: bytes) -> bytes:
    """Add up two blobs; SQLite calls it where a row is already there. What cannot be read stays, for readers to see."""
    try:
        a, b = unpack_detail(one), unpack_detail(other)
    except Unreadable:
        return one
    sums = (added(a.histogram, b.histogram), added(a.stage_ns, b.stage_ns), added(a.dominant, b.dominant))
    return pack_detail(Detail(*sums, added_evidence(a.evidence, b.evidence)))


def pack_witnesses(witnesses: Witnesses) -> bytes:
    """Return the blob of the slowest exchanges and the peers, bounded."""
    return msgspec.msgpack.encode(Witnesses(tuple(map(_bounded, slowest(witnesses.slowest))), most(witnesses.peers)))


def unpack_witnesses(blob: bytes) -> Witnesses:
    """Return what `pack_witnesses` packed. Raises Unreadable."""
    witnesses = _decoded(_witnesses, blob)
    _check("peers", witnesses.peers.values())
    _check("slowest", [hit.count for slow in witnesses.slowest for hit in slow.evidence])
    return witnesses


def add_witnesses(one: bytes, other: bytes) -> bytes:
    """Join two blobs and keep the slowest and the most frequent; SQLite calls it where a row is already there."""
    try:
        a, b = unpack_witnesses(one), unpack_witnesses(other)
    except Unreadable:
        return one
    return pack_witnesses(Witnesses(a.slowest + b.slowest, added(a.peers, b.peers)))


def _bounded(slow: SlowExchange) -> SlowExchange:
    hits = (replace(hit, wait_ns=min(hit.wait_ns, MAX_NS)) for hit in slow.evidence)
    return replace(slow, evidence=tuple(hits)) if slow.evidence else slow


def _ns(n: int) -> int | float:
    return n if -(1 << 63) <= n < 1 << 63 else float(n)


def _check(name: str, counts: Collection[int]) -> None:
    """Refuse sums that no honest counts come to."""
    for n in (min(counts), max(counts)) if counts else ():
        if abs(n) >= MAX_SUM:
            raise Unreadable(f"{name}: {n} events are more than can be")


def _decoded(decoder: msgspec.msgpack.Decoder[T], blob: bytes) -> T:
    try:
        return decoder.decode(blob)
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: text that is no UTF-8
        raise Unreadable(str(error)) from error
