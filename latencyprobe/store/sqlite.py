"""The embedded store: SQLite in WAL mode, one writing process, any number of readers.

The operator (its volume) or the standalone agent writes, `latencyprobe report` reads. The file: opening.py; levels of
rows: levels.py; blobs: packing.py; tables: schema.py. Calls may come from any thread, one at a time. WAL needs a
local file system.
"""
# ruff: noqa: S608 - every fragment of SQL is a constant; values are always bound

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from latencyprobe.bounds import MAX_SUM
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective, ObjectiveKey, key_of
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S
from latencyprobe.store import asked, columns, opening, past, retired, statements, windows
from latencyprobe.store.kept import Kept
from latencyprobe.store.levels import MINUTES_KEPT_S, WIDTHS_S, Horizons, Pace, boot_s, down, horizons, spans
from latencyprobe.store.recent import LastMinutes, Recent
from latencyprobe.store.series import Series

LATE_S = DAY_S  # agents keep what was not accepted for as long
_INSTANCE_KEPT_S = 3 * DAY_S


class SqliteStore:
    """A Store in one file. Opening for writing creates and migrates it; `readonly` needs it to be there; with
    `move_damaged` a damaged one is moved aside and a new one begun; `thorough` finds more damage, and takes longer.

    Raises StoreError, here and in every call: damaged, from a newer version, in use by another writer, disk full.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        readonly: bool = False,
        move_damaged: bool = False,
        thorough: bool = False,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = boot_s,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._pace = Pace(steady)
        self._lock = threading.RLock()
        self._kept = Kept(None if readonly else steady)
        self._db, self._claim = opening.connect(
            self.path, readonly=readonly, move_damaged=move_damaged, thorough=thorough
        )
        self._series = Series(self._db)
        self._recent = Recent(clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write everything to the main file and let another writer in."""
        try:
            with opening.failures(self.path):
                self._db.close()
        finally:
            if self._claim:
                self._claim.close()

    def try_write(self) -> None:
        """Write what changes nothing, to the log and on to the file: whether both take it."""
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            self._db.execute(f"PRAGMA user_version = {version:d}")
        with opening.failures(self.path):
            self._db.execute("PRAGMA wal_checkpoint").fetchone()

    @property
    def late_rows(self) -> int:
        """Rows that were refused because they came more than 24 h late, since the store exists."""
        with opening.failures(self.path):
            return int(self._db.execute("SELECT late_rows FROM state").fetchone()[0])

    def define(self, namespace: str, probe: str, objectives: Iterable[Objective]) -> None:
        """Keep a LatencyProbe's objectives, and retire those that it no longer has."""
        with self._transaction():
            self._db.execute("UPDATE series SET retired = 1 WHERE namespace = ? AND probe = ?", (namespace, probe))
            for objective in objectives:
                values = (msgspec.json.encode(objective), self._series.id(objective.key))
                self._db.execute("UPDATE series SET retired = 0, definition = ? WHERE id = ?", values)

    def objectives(self) -> tuple[Objective, ...]:
        """Return all objectives that are not retired, in the order in which they were first defined."""
        query = "SELECT definition FROM series WHERE NOT retired AND definition IS NOT NULL ORDER BY id"
        with opening.failures(self.path):
            return tuple(past.defined(definition for (definition,) in self._db.execute(query)))

    def add(self, rows: Iterable[SliRow]) -> None:
        """Add counts, all or none. Rows that come more than 24 h late are only counted, in `late_rows`."""
        with self._adding():
            self._add(rows)

    def add_batches(self, batches: Iterable[tuple[str, SliBatch]]) -> list[int]:
        """Add batches of nodes once each, all or none; return the next sequence number that will be taken from each
        one's instance.

        A batch that was there already changes nothing. A returned number that is not above the batch's means a gap:
        nothing of it was stored. An unknown instance may start anywhere. Counts and numbers are one transaction.
        """
        with self._adding():
            rows: list[SliRow] = []
            next_ones = [self._take_batch(node, batch, rows) for node, batch in batches]
            self._add(rows)
            return next_ones

    def expect(self, wanted: Iterable[tuple[Iterable[ObjectiveKey], int, int]]) -> int:
        """Say how much measured time, over all nodes, minutes should have: (objectives, minute, ms). The highest word
        for a minute counts. Returns how many of these came too late: their minutes are not kept any more.

        What was measured beyond it counts nowhere: it must not make up for what another minute misses.
        """
        too_late = 0
        with self._transaction():
            for keys, minute, expected_ms in wanted:
                if minute < self._horizons().minutes:
                    too_late += 1
                    continue
                for key in keys:
                    _, known = self._time(self._series.id(key), minute)
                    if (more := min(expected_ms - known, MAX_SUM)) > 0:
                        self._add_row(SliRow(*key, minute=minute, coverage=Coverage(expected_ms=more)))
        return too_late

    def ask(self, nodes: Mapping[str, Mapping[ObjectiveKey, int]]) -> None:
        """Remember that these nodes are asked to count these objectives now, and since when (Unix s)."""
        with self._transaction():
            asked.remember(self._db, nodes, int(self._clock()), self._series.id)

    def unask(self, gone: Iterable[tuple[str, ObjectiveKey]]) -> None:
        """Forget that nodes were asked to count these objectives."""
        with self._transaction():
            asked.unask(self._db, [(node, self._series.known(key)) for node, key in gone])

    def asked(self) -> dict[str, dict[ObjectiveKey, asked.Time]]:
        """Return what each node was asked to count within the last 2 days, and when."""
        with opening.failures(self.path):
            return asked.read(self._db)

    def since(self, key: ObjectiveKey) -> int | None:
        """Return the first minute of a series, `None` without counts."""
        with opening.failures(self.path):
            found = self._db.execute(statements.FIRST_MINUTE, key).fetchone()
        return found[0] if found else None

    def read(self, key: ObjectiveKey, since: int, until: int, *, exemplars: bool = True) -> SliRow:
        """Return the sum of all rows that overlap [since, until); `minute` is the start, aligned down to a row's.

        `exemplars`: also the slowest exchanges, those of the five slowest of each hour (after 35 days: day) that began
        in it, and peers. Raises StoreError for this series alone where a sum in it is above its bounds, as rows made
        that were stored unchecked.
        """
        with self._transaction("DEFERRED"), opening.readable():
            rows, kept = windows.Rows(self._db, self._series.known(key), self._kept), self._horizons()
            total = windows.counts(rows, key, since, until, kept)
            return windows.with_exemplars(rows, total, until, kept) if exemplars else total

    def by_peer(self, key: ObjectiveKey, since: int, until: int) -> LastMinutes | None:
        """Return the figures by peer of the last minutes in [since, until); only who writes them knows any."""
        with self._lock:
            return self._recent.read(key, since, until) if self._claim else None

    def events(self, key: ObjectiveKey, since: int, until: int) -> Events:
        """Return the good and bad events of all rows that overlap [since, until)."""
        with self._transaction("DEFERRED"):
            return past.events(self._db, self._series.known(key), spans(since, until, self._horizons()))

    def events_by_step(self, key: ObjectiveKey, since: int, until: int, step_s: int) -> list[Events]:
        """Return the same step by step, from the start of the window as it is aligned to its last step with counts."""
        with self._transaction("DEFERRED"):
            rows = spans(since, until, self._horizons(), widest_s=step_s)
            return past.by_step(self._db, self._kept, self._series.known(key), rows, step_s)

    def objectives_at(self, at: int) -> tuple[Objective, ...]:
        """Return the objectives that were counted at a moment (Unix s), also such as are retired since."""
        with opening.failures(self.path):
            return past.objectives(self._db, at)

    def last(self, namespace: str) -> int | None:
        """Return the last minute that was counted of a namespace, with RPCs or without; `None` without any."""
        with opening.failures(self.path):
            return past.last(self._db, namespace)

    def horizons(self) -> Horizons:
        """Return from when on (Unix s) the rows of each width are all there; of days, from the first counts on."""
        with opening.failures(self.path):
            (first,) = self._db.execute("SELECT min(first_minute) FROM series").fetchone()
            kept = self._horizons()
        return kept._replace(days=max(kept.days, first or 0))

    def untold(self, key: ObjectiveKey, since: int, until: int) -> tuple[str, ...]:
        """Return nothing: all that a report tells is here."""
        return ()

    def compact(self, now: int) -> None:
        """Delete minutes older than 2 days, hours older than 35, days older than 400, and definitions beyond `retired`.

        Horizons never recede, and what nothing was deleted of has none. A clock that jumps moves them on by as much
        as twice the time that it was wrong for.
        """
        with self._transaction():
            now = int(self._pace.believed(now, self._reached))
            kept = []
            for width_s, before, horizon in zip(WIDTHS_S, self._horizons(), horizons(now), strict=True):
                older = (width_s, max(before, horizon))
                deleted = self._db.execute(f"DELETE FROM counts {statements.BEFORE}", older).rowcount
                self._db.execute(f"DELETE FROM exemplars {statements.BEFORE}", older)
                kept.append(max(before, horizon) if deleted else before)
            self._db.execute("UPDATE state SET minutes = ?, hours = ?, days = ?", kept)
            self._kept.compacted(Horizons(*kept))
            self._db.execute("DELETE FROM instances WHERE minute < ?", (now - _INSTANCE_KEPT_S,))
            asked.forget(self._db, now)
            self._kept.dropped(retired.forget(self._db))
            self._series.forget()

    def _take_batch(self, node: str, batch: SliBatch, rows: list[SliRow]) -> int:
        sender = (node, batch.instance)
        last = self._db.execute(statements.LAST_SEQUENCE, sender).fetchone()
        if last and batch.sequence != last[0] + 1:
            return int(last[0]) + 1
        if not last:
            self._db.execute(statements.FORGET_INSTANCES, (node, node))
        rows += batch.rows
        self._db.execute(statements.KNOW_INSTANCE, (*sender, batch.sequence, int(self._clock())))
        return batch.sequence + 1

    def _add(self, rows: Iterable[SliRow]) -> None:
        for row in columns.together(rows):
            if row.minute >= self._clock() - LATE_S:
                self._recent.add(row)
                self._add_row(row)
            else:
                self._db.execute("UPDATE state SET late_rows = late_rows + 1")
                if row.minute >= self._horizons().minutes and self._series.known(key_of(row)):
                    self._add_row(columns.missed(row))  # what the report has to know of it

    def _add_row(self, row: SliRow) -> None:
        series = self._series.id(key_of(row))
        self._db.execute(statements.BEGIN_SERIES, (row.minute, series, row.minute))
        wanted = self._wanted_more(series, row)
        self._kept.changed(series, row.minute)
        detail = columns.detail(row)
        for width_s, coverage in zip(WIDTHS_S, (row.coverage, wanted, wanted), strict=True):
            counts = columns.counts(row, coverage)
            self._db.execute(statements.ADD_COUNTS, (series, width_s, down(row.minute, width_s), *counts, detail))
        if blob := columns.exemplars(row):
            for width_s in (HOUR_S, DAY_S):
                self._db.execute(statements.ADD_EXEMPLARS, (series, width_s, down(row.minute, width_s), blob))

    def _wanted_more(self, series: int, row: SliRow) -> Coverage:
        """Return a row's coverage with as much measured time as is wanted now and was not there before."""
        measured, expected = self._time(series, row.minute)
        now = min(measured + row.coverage.measured_ms, expected + row.coverage.expected_ms)
        return msgspec.structs.replace(row.coverage, measured_ms=now - min(measured, expected))

    def _time(self, series: int, minute: int) -> tuple[int, int]:
        """Return how much of a minute was measured and how much was wanted, over all nodes."""
        return self._db.execute(statements.TIME, (series, MINUTE_S, minute)).fetchone() or (0, 0)

    def _reached(self) -> float:
        """Return how late it was for sure when the store was opened: its oldest minutes had their time."""
        oldest = self._db.execute("SELECT min(first_minute) FROM series").fetchone()[0]
        kept = self._horizons().minutes or oldest
        return self._clock() if kept is None else kept + MINUTES_KEPT_S

    def _horizons(self) -> Horizons:
        return Horizons(*self._db.execute("SELECT minutes, hours, days FROM state").fetchone())

    @contextmanager
    def _adding(self) -> Iterator[None]:
        with self._lock, self._recent.taking(), self._transaction():
            yield

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        with self._lock, opening.failures(self.path):
            self._db.execute(f"BEGIN {kind}")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._series.forget()
                if self._db.in_transaction:  # SQLite itself rolls back where the disk is full
                    self._db.execute("ROLLBACK")
                raise
