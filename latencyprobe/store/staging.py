"""Staging: batches as they came, in a table of their own, until they are settled in the levels. `sqlite.py` asks here.

Many nodes tell of the same objective and minute, and each row that is written costs three merges of blobs. So what
comes within seconds is added up in memory first; meanwhile the table has it, for whoever opens the file next.
"""

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable

import msgspec

from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import statements
from latencyprobe.store.columns import Sums, together
from latencyprobe.wire import UNREADABLE

log = logging.getLogger(__name__)

STAGED_S = 10.0
MAX_ROWS = 5_000  # each of another objective or minute: then other calls have their turn
MAX_BYTES = 8 << 20  # of the table; in memory, where nothing could be added up, they are 7 to 9 times as many

_rows = msgspec.msgpack.Decoder(tuple[SliRow, ...])


class Staging:
    """The rows of a file's one writer that are staged. `steady`: seconds that nobody sets; `lost`: rows that
    cannot be stored (`unstorable`) and batches that cannot be read again (`unreadable`)."""

    def __init__(self, db: sqlite3.Connection, steady: Callable[[], float], lost: Counter[str]) -> None:
        self._db = db
        self._steady = steady
        self.lost = lost
        self._since: float | None = None
        self._bytes = 0
        self._taken_up = False
        self._sums: dict[tuple[ObjectiveKey, int], SliRow] = {}

    def rows(self) -> tuple[SliRow, ...]:
        """Return what is to be settled: a row for each objective and minute."""
        self._take_up()
        return tuple(self._sums.values())

    @property
    def due(self) -> bool:
        """Whether it has waited for long enough, or is much."""
        late = self._since is not None and self._steady() >= self._since + STAGED_S
        return late or len(self._sums) >= MAX_ROWS or self._bytes >= MAX_BYTES

    def take(self, node: str, batch: SliBatch, now: float, rows: list[SliRow]) -> int:
        """Add to `rows` those of a batch, if it is the next of its instance; return which is next. `now`: Unix s."""
        sender = (node, batch.instance)
        last = self._db.execute(statements.LAST_SEQUENCE, sender).fetchone()
        if last and batch.sequence != last[0] + 1:
            return int(last[0]) + 1
        if not last:
            self._db.execute(statements.FORGET_INSTANCES, (node, node))
        rows += batch.rows
        self._db.execute(statements.KNOW_INSTANCE, (*sender, batch.sequence, int(now)))
        return batch.sequence + 1

    def stage(self, rows: tuple[SliRow, ...]) -> Sums:
        """Write rows into the table, without figures by peer (recent.py); return them added up with what is staged of
        their objectives and minutes, for `keep`. Raises one of UNREADABLE for what could not be read again."""
        self._take_up()
        if rows:
            written = [msgspec.structs.replace(row, by_peer={}) if row.by_peer else row for row in rows]
            blob = msgspec.msgpack.encode(written)
            _rows.decode(blob)
            self._db.execute("INSERT INTO staged (rows) VALUES (?)", (blob,))
            self._bytes += len(blob)
        return together(rows, self._sums)

    def keep(self, sums: Sums) -> None:
        """Take over what `stage` returned, once it is in the table for good."""
        self._sums.update(sums)
        if self._sums and self._since is None:
            self._since = self._steady()

    def clear(self) -> None:
        """Empty the table."""
        self._db.execute("DELETE FROM staged")

    def forget(self) -> None:
        """Forget what is settled, once the table is empty."""
        self._sums, self._since, self._bytes = {}, None, 0

    def _take_up(self) -> None:
        """Take up what the writer before has left, once."""
        if self._taken_up:
            return
        left = self._db.execute("SELECT id, rows FROM staged ORDER BY id").fetchall()
        self._taken_up = True
        for number, blob in left:
            try:
                self.keep(together(_rows.decode(blob), self._sums))
            except (*UNREADABLE, TypeError) as error:  # TypeError: no blob at all
                self.lost["unreadable"] += 1
                log.error("staged counts (%d) cannot be read, and are lost: %s", number, error)
