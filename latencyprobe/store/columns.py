"""A row of counts as the tables hold it: columns that SQL adds up, and blobs (packing.py). Pure; `sqlite.py` asks here.

Of measured time, minutes have all, and what counts is as much of it as was wanted; hours and days have that sum.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from latencyprobe.bounds import MAX_SUM
from latencyprobe.causes import folded
from latencyprobe.sli import Coverage, SliRow, added, missing, most, slowest
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import packing
from latencyprobe.store.packing import Detail, Exemplars
from latencyprobe.store.schema import COUNT_COLUMNS

_WIDTH, _FIRST = 1, 3  # in a row of `counts`: series, width_s, start, then COUNT_COLUMNS, and the blob last
_MEASURED = _FIRST + COUNT_COLUMNS.index("measured_ms")  # expected_ms comes next


def counts(row: SliRow, coverage: Coverage) -> tuple[int, ...]:
    """Return a row's COUNT_COLUMNS, with another coverage."""
    return (row.good, row.bad, *msgspec.structs.astuple(coverage)[:-1])


def detail(row: SliRow) -> bytes:
    """Return the blob of what is in no column."""
    return packing.pack_detail(
        Detail(
            *(row.histogram, row.stage_ns, row.dominant, row.evidence, row.exclusions),
            *(row.coverage.sampled_out, row.pressure, row.cause_ns),
        )
    )


def exemplars(row: SliRow) -> bytes:
    """Return the blob of the slowest exchanges and of peers, empty without any."""
    if not (row.slowest or row.peers or row.waited_ns):
        return b""
    return packing.pack_exemplars(Exemplars(row.slowest, row.peers, row.waited_ns))


def missed(row: SliRow) -> SliRow:
    """Return what the report has to know of a row that is not taken."""
    return SliRow(*key_of(row), minute=row.minute, coverage=Coverage(lost=missing(row)))


def total(key: ObjectiveKey, start: int, stored: Collection[tuple[Any, ...]]) -> SliRow:
    """Return the sum of rows of `counts`, without exemplars. Raises Unreadable for what cannot be."""
    for column, values in zip(COUNT_COLUMNS, list(zip(*stored, strict=True))[_FIRST:-1], strict=False):
        _check(column, values)
    # of minutes, only as much measured time counts as was wanted
    rows = (
        (*row[_FIRST:_MEASURED], min(row[_MEASURED], row[_MEASURED + 1]), row[_MEASURED + 1])
        if row[_WIDTH] == MINUTE_S
        else row[_FIRST:-1]
        for row in stored
    )
    good, bad, *numbers = map(sum, zip(*rows, strict=True)) if stored else (0,) * len(COUNT_COLUMNS)
    parts = packing.summed(row[-1] for row in stored)
    return SliRow(
        *key,
        minute=start,
        good=good,
        bad=bad,
        coverage=Coverage(*[*numbers, parts.sampled_out]),
        histogram=parts.histogram,
        stage_ns=parts.stage_ns,
        dominant=parts.dominant,
        evidence=parts.evidence,
        exclusions=parts.exclusions,
        pressure=parts.pressure,
        cause_ns=folded(parts.cause_ns),
    )


def with_exemplars(row: SliRow, blobs: Iterable[bytes], until: int) -> SliRow:
    """Return a row with what blobs of `exemplars` hold; of the slowest, those that began from its minute on until
    `until` (Unix s). Raises Unreadable."""
    seen = [packing.unpack_exemplars(blob) for blob in blobs]
    since_ns, until_ns = row.minute * 10**9, until * 10**9
    return msgspec.structs.replace(
        row,
        slowest=slowest(slow for one in seen for slow in one.slowest if since_ns <= slow.start_unix_ns < until_ns),
        peers=most(added(*(one.peers for one in seen))),
        waited_ns=most(added(*(one.waited_ns for one in seen))),
    )


def _check(column: str, values: Collection[int]) -> None:
    for n in values:
        if not isinstance(n, int) or not (-MAX_SUM if column in ("good", "bad") else -1) < n < MAX_SUM:
            raise packing.Unreadable(f"{column} is {n}, which cannot be")
