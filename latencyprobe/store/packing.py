"""Packing: the sparse parts of a row as one small blob (msgpack), so that an objective-minute takes ≤ 200 B. Pure.

`sqlite.py` writes and merges these blobs; what has to be summed or compared by SQL stands in columns instead.
"""

import msgspec

from latencyprobe import stages
from latencyprobe.sli import EvidenceCount, SlowExchange, added, added_evidence, most, slowest

_CODES: dict[str, int | str] = {stage.name: stage.code for stage in stages.BY_NAME.values()}
_NAMES = {code: name for name, code in _CODES.items()}  # a name without a code is stored as it is


class Detail(msgspec.Struct, frozen=True, array_like=True):
    """Of one row: counts by histogram bucket; of bad events each stage's sum in ns and how many it dominated; what
    signals explain."""

    histogram: dict[int, int] = {}
    stage_ns: dict[str, int] = {}
    dominant: dict[str, int] = {}
    evidence: dict[str, EvidenceCount] = {}


class Exemplars(msgspec.Struct, frozen=True, array_like=True):
    """Of one row: the slowest exchanges, slowest first, and bad events by peer."""

    slowest: tuple[SlowExchange, ...] = ()
    peers: dict[str, int] = {}


# The histogram: first bucket's index, then counts in order, where -n stands for n empty buckets: mostly one byte each.
class _Packed(msgspec.Struct, frozen=True, array_like=True):
    dense: list[int]
    stages: dict[int | str, tuple[int, int]]
    evidence: dict[str, EvidenceCount] = {}


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
        _CODES.get(name, name): (detail.stage_ns.get(name, 0), detail.dominant.get(name, 0))
        for name in {**detail.stage_ns, **detail.dominant}
    }
    if not dense and not by_stage and not detail.evidence:
        return b""
    evidence = (detail.evidence,) if detail.evidence else ()  # most rows have none
    return msgspec.msgpack.encode((dense, by_stage, *evidence))


def unpack_detail(blob: bytes) -> Detail:
    """Return what `pack_detail` packed."""
    if not blob:
        return Detail()
    packed = _detail.decode(blob)
    dense, coded = packed.dense, packed.stages
    histogram = {}
    index = dense[0] if dense else 0
    for count in dense[1:]:
        if count > 0:
            histogram[index] = count
        index += 1 if count > 0 else -count
    by_stage = {str(_NAMES.get(code, code)): sums for code, sums in coded.items()}
    return Detail(
        histogram,
        {name: total_ns for name, (total_ns, _) in by_stage.items() if total_ns},
        {name: count for name, (_, count) in by_stage.items() if count},
        packed.evidence,
    )


def add_details(one: bytes, other: bytes) -> bytes:
    """Add up two blobs; SQLite calls it where a row is already there."""
    a, b = unpack_detail(one), unpack_detail(other)
    sums = (added(a.histogram, b.histogram), added(a.stage_ns, b.stage_ns), added(a.dominant, b.dominant))
    return pack_detail(Detail(*sums, added_evidence(a.evidence, b.evidence)))


def pack_exemplars(exemplars: Exemplars) -> bytes:
    """Return the blob of the slowest exchanges and the peers, bounded."""
    return msgspec.msgpack.encode(Exemplars(slowest(exemplars.slowest), most(exemplars.peers)))


def unpack_exemplars(blob: bytes) -> Exemplars:
    """Return what `pack_exemplars` packed."""
    return _exemplars.decode(blob)


def add_exemplars(one: bytes, other: bytes) -> bytes:
    """Join two blobs and keep the slowest and the most frequent; SQLite calls it where a row is already there."""
    a, b = unpack_exemplars(one), unpack_exemplars(other)
    return pack_exemplars(Exemplars(a.slowest + b.slowest, added(a.peers, b.peers)))
