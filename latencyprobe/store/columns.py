"""A row of counts as the tables hold it: columns that SQL adds up, and blobs (packing.py). Pure; `sqlite.py` asks here.

Of measured time, minutes have all, and what counts is as much of it as was wanted; hours and days have that sum.
"""

from typing import Any

import msgspec

from latencyprobe.bounds import MAX_SUM
from latencyprobe.sli import Coverage, SliRow, missing
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import packing
from latencyprobe.store.packing import Detail, Exemplars
from latencyprobe.store.schema import COUNT_COLUMNS


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


def row(key: ObjectiveKey, stored: tuple[Any, ...]) -> SliRow:
    """Return a row of `counts` without exemplars. Raises Unreadable for what cannot be."""
    _, width_s, start, good, bad, *numbers, blob = stored
    for column, n in zip(COUNT_COLUMNS, (good, bad, *numbers), strict=True):
        if not isinstance(n, int) or not (-MAX_SUM if column in ("good", "bad") else -1) < n < MAX_SUM:
            raise packing.Unreadable(f"{column} is {n}, which cannot be")
    parts = packing.unpack_detail(blob)
    coverage = Coverage(*[*numbers, parts.sampled_out])
    if width_s == MINUTE_S:
        wanted_ms = min(coverage.measured_ms, coverage.expected_ms)
        coverage = msgspec.structs.replace(coverage, measured_ms=wanted_ms)
    return SliRow(
        *key,
        minute=start,
        good=good,
        bad=bad,
        coverage=coverage,
        histogram=parts.histogram,
        stage_ns=parts.stage_ns,
        dominant=parts.dominant,
        evidence=parts.evidence,
        exclusions=parts.exclusions,
        pressure=parts.pressure,
        cause_ns=parts.cause_ns,
    )
