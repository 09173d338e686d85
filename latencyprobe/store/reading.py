"""One row of the table of counts as it is read: checked, and with its packed part. Pure."""

from typing import Any

import msgspec

from latencyprobe.bounds import MAX_SUM
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import packing
from latencyprobe.store.schema import COUNT_COLUMNS


def row(key: ObjectiveKey, counts: tuple[Any, ...]) -> SliRow:
    """Return a row of a series. Raises packing.Unreadable where a sum is above its bounds."""
    _, width_s, start, good, bad, *numbers, blob = counts
    for column, n in zip(COUNT_COLUMNS, (good, bad, *numbers), strict=True):
        if not isinstance(n, int) or not (-MAX_SUM if column in ("good", "bad") else -1) < n < MAX_SUM:
            raise packing.Unreadable(f"{column} is {n}, which cannot be")
    detail = packing.unpack_detail(blob)
    coverage = Coverage(*[*numbers, detail.sampled_out])
    if width_s == MINUTE_S and not coverage.expected_ms:  # not asked for yet: it must not fill another minute's gap
        coverage = msgspec.structs.replace(coverage, measured_ms=0)
    return SliRow(
        *key,
        minute=start,
        good=good,
        bad=bad,
        coverage=coverage,
        histogram=detail.histogram,
        stage_ns=detail.stage_ns,
        dominant=detail.dominant,
        evidence=detail.evidence,
        exclusions=detail.exclusions,
        pressure=detail.pressure,
        cause_ns=detail.cause_ns,
    )
