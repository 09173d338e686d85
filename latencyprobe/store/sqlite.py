"""The embedded store: SQLite in WAL mode, one writing process, any number of readers.

The operator (its volume) or the standalone agent writes, `latencyprobe report` reads. The file: opening.py; levels of
rows: levels.py; blobs: packing.py; tables: schema.py. Calls may come from any thread, one at a time. WAL needs a
local file system.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from latencyprobe.bounds import MAX_SUM
from latencyprobe.errors import StoreError
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective, ObjectiveKey, key_of
from latencyprobe.slo.windows import DAY_S
from latencyprobe.store import asked, columns, compaction, levelled, opening, past, retired, statements, windows
from latencyprobe.store.kept import Kept
from latencyprobe.store.levels import MINUTES_KEPT_S, Horizons, Pace, boot_s, spans
from latencyprobe.store.recent import LastMinutes, Recent
from latencyprobe.store.series import Series
from latencyprobe.store.staging import Staging

LATE_S = DAY_S  # agents keep what was not accepted for as long


class SqliteStore:
    """A Store in one file. Opening for writing creates and migrates it; `readonly` needs it to be there; with
    `move_damaged` a damaged one is moved aside and a new one begun; `thorough` finds more damage, and takes longer.
    `lost`: rows that were accepted and cannot be stored are counted there (`unstorable`, `unreadable`).

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
        lost: Counter[str] | None = None,
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
        self._staging = Staging(self._db, steady, Counter() if lost is None else lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write everything to the main file and let another writer in."""
        if self._claim:
            with suppress(StoreError):  # what cannot be settled stays staged
                self.settle()
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
            for row in columns.together(self._in_time(rows)).values():
                self._add(row)

    def add_batches(self, batches: Iterable[tuple[str, SliBatch]]) -> list[int]:
        """Add batches of nodes once each, all or none; return the next sequence number that will be taken from each
        one's instance. They are read once they are settled, which they are within seconds while others come.

        A batch that was there already changes nothing. A returned number that is not above the batch's means a gap:
        nothing of it was stored. An unknown instance may start anywhere. Counts and numbers are one transaction.
        """
        with self._lock:
            if self._staging.due:  # before others come: what cannot be settled must not grow
                self.settle()
            with self._transaction():
                rows: list[SliRow] = []
                next_ones = [self._staging.take(node, batch, self._clock(), rows) for node, batch in batches]
                sums = self._staging.stage(self._in_time(rows))
            self._staging.keep(sums)
            return next_ones

    def settle(self) -> None:
        """Let what was added be read, all of it. A row that cannot be written is lost: logged, and counted."""
        with self._adding():
            for row in self._staging.rows():
                with opening.alone(self._db, self.path, row, self._undone):
                    self._add(row)
            self._staging.clear()
        self._staging.forget()

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
                    _, known = levelled.time_ms(self._db, self._series.id(key), minute)
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

    def why_none(self, key: ObjectiveKey, since: int, until: int) -> str:
        """Return nothing: what is not here was not counted."""
        return ""

    def untold(self, key: ObjectiveKey, since: int, until: int) -> tuple[str, ...]:
        """Return nothing: all that a report tells is here."""
        return ()

    def compact(self, now: int) -> None:
        """Delete minutes older than 2 days, hours older than 35, days older than 400, and definitions beyond `retired`.

        Horizons never recede, and what nothing was deleted of has none. A clock that jumps moves them on by as much
        as twice the time that it was wrong for.
        """
        with self._transaction():
            left = compaction.compact(self._db, int(self._pace.believed(now, self._reached)), self._horizons())
            self._kept.compacted(left)
            self._kept.dropped(retired.forget(self._db))
            self._series.forget()

    def _in_time(self, rows: Iterable[SliRow]) -> tuple[SliRow, ...]:
        """Return the rows that did not come too late. The others are counted, and told to their coverage."""
        since, found = self._clock() - LATE_S, []
        for row in rows:
            if row.minute >= since:
                found.append(row)
                continue
            self._db.execute("UPDATE state SET late_rows = late_rows + 1")
            if row.minute >= self._horizons().minutes and self._series.known(key_of(row)):
                self._add_row(columns.missed(row))  # what the report has to know of it
        return tuple(found)

    def _undone(self) -> None:
        self._series.forget()
        self._staging.lost["unstorable"] += 1

    def _add(self, row: SliRow) -> None:
        self._add_row(row)
        self._recent.add(row)

    def _add_row(self, row: SliRow) -> None:
        series = self._series.id(key_of(row))
        self._kept.changed(series, row.minute)
        levelled.add(self._db, series, row)

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
