"""A row of counts as the tables hold it: columns that SQL adds up, and blobs (packing.py). Pure; `sqlite.py` asks here.

Of measured time, minutes have all, and what counts is as much of it as was wanted; hours and days have that sum.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from latencyprobe.bounds import MAX_SUM
from latencyprobe.causes import folded
from latencyprobe.sli import Coverage, SliRow, SlowExchange, added, merged, missing, most, slowest
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import packing
from latencyprobe.store.packing import Detail, Exemplars
from latencyprobe.store.schema import COUNT_COLUMNS

_WIDTH, _FIRST = 1, 3  # in a row of `counts`: series, width_s, start, then COUNT_COLUMNS, and the blob last
_MEASURED = _FIRST + COUNT_COLUMNS.index("measured_ms")  # expected_ms comes next

Sums = Mapping[tuple[ObjectiveKey, int], SliRow]  # by objective and minute
_NOTHING: Sums = {}


class Sum(msgspec.Struct, frozen=True, array_like=True):
    """What rows of `counts` add up to: COUNT_COLUMNS, and what is in their blobs."""

    numbers: tuple[int, ...]
    detail: Detail


def together(rows: Iterable[SliRow], before: Sums = _NOTHING) -> dict[tuple[ObjectiveKey, int], SliRow]:
    """Return rows by objective and minute, those of the same added up, and to what `before` has of it: many nodes have
    such, and each that is written costs a look at three rows of the table, with their blobs."""
    same: dict[tuple[ObjectiveKey, int], list[SliRow]] = {}
    for row in rows:
        which = key_of(row), row.minute
        if which not in same:
            same[which] = [before[which]] if which in before else []
        same[which].append(row)
    return {which: merged(*some) if len(some) > 1 else some[0] for which, some in same.items()}


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


def summed(stored: Collection[tuple[Any, ...]]) -> Sum:
    """Return the sum of rows of `counts`. Raises Unreadable for what cannot be."""
    for column, values in zip(COUNT_COLUMNS, list(zip(*stored, strict=True))[_FIRST:-1], strict=False):
        _check(column, values)
    # of minutes, only as much measured time counts as was wanted
    rows = (
        (*row[_FIRST:_MEASURED], min(row[_MEASURED], row[_MEASURED + 1]), row[_MEASURED + 1])
        if row[_WIDTH] == MINUTE_S
        else row[_FIRST:-1]
        for row in stored
    )
    numbers = tuple(map(sum, zip(*rows, strict=True))) if stored else (0,) * len(COUNT_COLUMNS)
    return Sum(numbers, packing.summed(row[-1] for row in stored))


def total(key: ObjectiveKey, start: int, sums: Sequence[Sum]) -> SliRow:
    """Return what sums add up to as the row of a window that begins at `start` (Unix s), without exemplars."""
    good, bad, *numbers = map(sum, zip((0,) * len(COUNT_COLUMNS), *(one.numbers for one in sums), strict=True))
    parts = packing.joined([one.detail for one in sums])
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


def witnesses(parts: Iterable[Exemplars], began: Callable[[SlowExchange], bool] = lambda slow: True) -> Exemplars:
    """Return what parts tell together, within the bounds of a row; of the slowest those that began when they should."""
    seen = tuple(parts)
    return Exemplars(
        slowest(slow for one in seen for slow in one.slowest if began(slow)),
        most(added(*(one.peers for one in seen))),
        most(added(*(one.waited_ns for one in seen))),
    )


def _check(column: str, values: Collection[int]) -> None:
    for n in values:
        if not isinstance(n, int) or not (-MAX_SUM if column in ("good", "bad") else -1) < n < MAX_SUM:
            raise packing.Unreadable(f"{column} is {n}, which cannot be")
