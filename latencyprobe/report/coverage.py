"""What stands behind the counts of a row, for the report. Pure."""

from fractions import Fraction

from latencyprobe.report import units
from latencyprobe.report.model import Coverage, Exclusion
from latencyprobe.report.turns import by_size
from latencyprobe.sli import SliRow

_REASONS = 16


def of(row: SliRow, ratio: Fraction, nodes_missing: int) -> Coverage:
    """Return the coverage of a row. `ratio`: as evaluated, of 1; `nodes_missing`: who should measure and do not."""
    seen = row.coverage
    return Coverage(
        ratio=units.percent(ratio, 1),
        seen=seen.seen,
        ambiguous=seen.ambiguous,
        excluded=seen.excluded,
        lost=seen.lost,
        records_lost=seen.records_lost,
        joined=seen.joined,
        nodes_missing=nodes_missing,
        gaps=units.time_span(max(0, seen.expected_ms - seen.measured_ms) // 1000),
        exclusions=tuple(Exclusion(reason[:63], turns) for reason, turns in by_size(row.exclusions)[:_REASONS]),
        sampled_out=seen.sampled_out,
    )
