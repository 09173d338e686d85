"""How a row is added to its minute, its hour and its day. `sqlite.py` asks here."""

import sqlite3

import msgspec

from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S
from latencyprobe.store import columns, statements
from latencyprobe.store.levels import WIDTHS_S, down


def add(db: sqlite3.Connection, series: int, row: SliRow) -> None:
    """Add a row of a series to all levels."""
    db.execute(statements.BEGIN_SERIES, (row.minute, series, row.minute))
    wanted, detail = _wanted_more(db, series, row), columns.detail(row)
    for width_s, coverage in zip(WIDTHS_S, (row.coverage, wanted, wanted), strict=True):
        counts = columns.counts(row, coverage)
        db.execute(statements.ADD_COUNTS, (series, width_s, down(row.minute, width_s), *counts, detail))
    if blob := columns.exemplars(row):
        for width_s in (HOUR_S, DAY_S):
            db.execute(statements.ADD_EXEMPLARS, (series, width_s, down(row.minute, width_s), blob))


def time_ms(db: sqlite3.Connection, series: int, minute: int) -> tuple[int, int]:
    """Return how much of a minute was measured and how much was wanted, over all nodes."""
    return db.execute(statements.TIME, (series, MINUTE_S, minute)).fetchone() or (0, 0)


def _wanted_more(db: sqlite3.Connection, series: int, row: SliRow) -> Coverage:
    """Return a row's coverage with as much measured time as is wanted now and was not there before."""
    measured, expected = time_ms(db, series, row.minute)
    now = min(measured + row.coverage.measured_ms, expected + row.coverage.expected_ms)
    return msgspec.structs.replace(row.coverage, measured_ms=now - min(measured, expected))
