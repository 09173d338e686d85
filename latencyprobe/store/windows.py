"""The sum of a window, piece by piece: read from its rows, or what is kept of them (kept.py). `sqlite.py` asks here.

The counts of pieces add up to those of the window, however it is cut. Of exemplars each piece has its own slowest and
its own peers, as each row has, and the window the slowest and most frequent of these.
"""

import sqlite3
from functools import partial
from typing import NamedTuple

import msgspec

from latencyprobe.sli import SliRow, SlowExchange
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import HOUR_S
from latencyprobe.store import columns, packing
from latencyprobe.store.columns import Sum
from latencyprobe.store.kept import Kept
from latencyprobe.store.levels import Horizons, Span, down, pieces, spans
from latencyprobe.store.packing import Exemplars
from latencyprobe.store.statements import COUNTS, EXEMPLARS


class Rows(NamedTuple):
    """The rows of one series, and what is kept of them."""

    db: sqlite3.Connection
    series: int
    kept: Kept


def counts(rows: Rows, key: ObjectiveKey, since: int, until: int, horizons: Horizons) -> SliRow:
    """Return the sum of all rows that overlap [since, until) as one row, without exemplars. Raises Unreadable."""
    of_window = spans(since, until, horizons)
    sums = [rows.kept.sum(Sum, rows.series, piece, partial(_sum, rows, piece)) for piece in pieces(of_window)]
    total = columns.total(key, of_window[0].since if of_window else since, sums)
    return msgspec.structs.replace(total, good=max(total.good, 0), bad=max(total.bad, 0))  # see bounds.TORN


def with_exemplars(rows: Rows, row: SliRow, until: int, horizons: Horizons) -> SliRow:
    """Return the row of a window with its exemplars, of hours and days; of the slowest exchanges those that began from
    its minute on until `until` (Unix s). Raises Unreadable."""
    by_hour = spans(down(row.minute, HOUR_S), until, horizons._replace(minutes=until + HOUR_S))
    found = columns.witnesses(_witnesses(rows, piece, row.minute, until) for piece in pieces(by_hour))
    return msgspec.structs.replace(row, slowest=found.slowest, peers=found.peers, waited_ns=found.waited_ns)


def _sum(rows: Rows, piece: Span) -> Sum:
    return columns.summed(rows.db.execute(COUNTS, (rows.series, *piece)).fetchall())


def _witnesses(rows: Rows, piece: Span, since: int, until: int) -> Exemplars:
    def began(slow: SlowExchange) -> bool:
        return since * 10**9 <= slow.start_unix_ns < until * 10**9

    def read() -> list[Exemplars]:
        return [packing.unpack_exemplars(blob) for (blob,) in rows.db.execute(EXEMPLARS, (rows.series, *piece))]

    found = rows.kept.sum(Exemplars, rows.series, piece, lambda: columns.witnesses(read()))
    # an hour has such as were still under way when it, and the window, began
    return found if all(map(began, found.slowest)) else columns.witnesses(read(), began)
