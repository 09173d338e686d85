"""SLI rows that wait for the directory, in one SQLite file that a killed agent leaves whole, or in memory.

The rows, the batch in flight, its number and the sender that it is of change together, so each row is handed over once,
whatever ends the process (docs/design/directory.md, "Sequence numbers"). One process has the file at a time.

A transaction outlives the process without a sync. What a sync is for is a power cut: without one it could take back
that rows had left for a batch, which the directory then has, so a batch is on the disk before it goes.
"""

import math
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from latencyprobe.shares import shares
from latencyprobe.sli import SliBatch, SliRow, merged, missing
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe.wire import UNREADABLE
from latencyprobe_agent.directory import spool_file
from latencyprobe_agent.directory.spool_file import SpoolDamagedError

BATCH_ROWS = 250
_BATCH_BYTES = 3 << 20  # of JSON: the directory takes 4 MiB
CAPACITY_ROWS = 20_000  # 13 objectives for 24 h
_CAPACITY_BYTES = 64 << 20  # 3 kB each; the folder has 512 MiB
_KEEP_S = 24 * 3600  # the directory takes none that are later
_HELD_UP_S = 600
_MISSING = 1_000  # objectives whose losses are remembered until their next row
_VERSION = 1
_SCHEMA = f"""
    BEGIN;
    CREATE TABLE rows (minute INTEGER NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL, PRIMARY KEY (minute, key));
    CREATE TABLE missing (key BLOB PRIMARY KEY, exchanges INTEGER NOT NULL);
    CREATE TABLE sender (instance TEXT NOT NULL, sequence INTEGER NOT NULL, flight BLOB); -- one row
    PRAGMA user_version = {_VERSION};
    COMMIT;
"""


class Spool:
    """`path`: None for memory. `dropped` counts rows that the directory never gets, by reason; of these the next row of
    their objective says how many exchanges are `lost`. `flight`: the batch in flight. Every call raises SpoolError, and
    has changed nothing then."""

    def __init__(self, path: Path | None, dropped: Counter[str]) -> None:
        self.flight: SliBatch | None = None
        self._path = path
        self._dropped = dropped
        self._stored = 0
        with spool_file.failures(self._path):
            self._db = spool_file.connect(self._path)
            self._db.create_function("namespace", 1, _namespace, deterministic=True)
            try:
                self._begin()
            except BaseException:
                self._db.close()
                raise

    @property
    def waiting(self) -> int:
        """Rows that the directory has not got yet."""
        return self._stored + (len(self.flight.rows) if self.flight else 0)

    def close(self) -> None:
        """Let another process have the file."""
        self._db.close()

    def add(self, rows: Iterable[SliRow], now_unix_s: float) -> None:
        """Take rows in; equal objective and minute are added up. What is too old goes, and the oldest of each namespace
        that has more than its share of the room."""
        with self._changes() as dropped:
            self._add(map(_without_peers, rows) if self._held_up(now_unix_s) else rows)
            self._keep_small(now_unix_s, dropped)

    def take_over(self, other: "Spool", now_unix_s: float) -> None:
        """Take in what waits in another, which has nothing in flight, and leave it empty."""
        with self._changes() as dropped:
            self._add(other._rows())
            self._tell_missing(other._missing().items())
            self._keep_small(now_unix_s, dropped)
        with other._changes():
            other._db.execute("DELETE FROM rows")
            other._db.execute("DELETE FROM missing")

    def batch(self, but: int | None = None) -> SliBatch | None:
        """Return the batch in flight, else a new one of the oldest minutes; None without any rows. `but`: the minute
        (Unix s) whose rows stay, as more of them are to come."""
        if self.flight is None and self._has_more(but):
            with self._changes(synced=True):
                batch = self._next_batch(but)
            self.flight = batch
        return self.flight

    def answered(self, expected: int) -> None:
        """Take the directory's answer: the number that it expects after the batch in flight."""
        assert self.flight is not None
        sequence, rows, flight = self.flight.sequence, self.flight.rows, None
        with self._changes() as dropped:
            if expected > sequence + 1:  # it has later ones than we know of: what is here may be among them
                self._tell_missing((_key(row), missing(row)) for row in rows)
                dropped["restored"] += len(rows) + self._drop()
            elif expected <= sequence:  # a gap: it has forgotten a batch of ours, say after its store was restored
                flight = msgspec.structs.replace(self.flight, sequence=expected)
            self._send(expected, flight)
        self.flight = flight

    def refused(self) -> None:
        """Drop the batch in flight: the directory will never take it."""
        assert self.flight is not None
        with self._changes() as dropped:
            self._tell_missing((_key(row), missing(row)) for row in self.flight.rows)
            dropped["refused"] += len(self.flight.rows)
            self._send(self.flight.sequence, None)
        self.flight = None

    def _begin(self) -> None:
        """Become the one process that has the file, and find what waits in it."""
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL", "cache_size = -256"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("COMMIT")
        version, tables = self._pragma("user_version"), self._pragma("schema_version")
        if version != _VERSION and tables:
            raise SpoolDamagedError(f"{self._path}: of another version, or not ours")
        if (damage := self._pragma("quick_check(1)")) != "ok":
            raise SpoolDamagedError(f"{self._path}: {damage}")
        if not tables:
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT INTO sender VALUES (?, 0, NULL)", (str(uuid.uuid4()),))
        *_, flight = self._sender()
        self.flight = None if flight is None else msgspec.msgpack.decode(flight, type=SliBatch)
        self._stored = self._count()

    def _add(self, rows: Iterable[SliRow]) -> None:
        for row in rows:
            at = row.minute, _key(row)
            known = self._db.execute("SELECT body FROM rows WHERE minute = ? AND key = ?", at).fetchone()
            body = msgspec.msgpack.encode(merged(_row(known[0]), row) if known else row)
            self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (*at, body))

    def _held_up(self, now_unix_s: float) -> bool:
        """Return whether rows have waited for so long that nobody will want the figures by peer of what comes: they are
        kept for minutes alone."""
        old = (now_unix_s - _HELD_UP_S,)
        return self._db.execute("SELECT 1 FROM rows WHERE minute < ? LIMIT 1", old).fetchone() is not None

    def _has_more(self, but: int | None) -> bool:
        if but is None or not self._stored:
            return self._stored > 0
        with spool_file.failures(self._path):
            return self._db.execute("SELECT 1 FROM rows WHERE minute IS NOT ? LIMIT 1", (but,)).fetchone() is not None

    def _next_batch(self, but: int | None) -> SliBatch:
        query = "SELECT minute, key, body FROM rows WHERE minute IS NOT ? ORDER BY minute, key LIMIT ?"
        lost, rows, size = self._missing(), list[SliRow](), 0
        for minute, key, body in self._db.execute(query, (but, BATCH_ROWS)).fetchall():
            row = _row(body)
            size += len(msgspec.json.encode(row))
            if rows and size > _BATCH_BYTES:
                break
            rows.append(_lacking(row, lost.pop(key, 0)))
            last = minute, key
        deleted = self._db.execute("DELETE FROM rows WHERE (minute, key) <= (?, ?) AND minute IS NOT ?", (*last, but))
        self._check_gone(deleted.rowcount, len(rows))
        self._db.execute("DELETE FROM missing")
        self._tell_missing(lost.items())
        instance, sequence, _ = self._sender()
        batch = SliBatch(instance, sequence, tuple(rows))
        self._send(sequence, batch)
        return batch

    def _send(self, sequence: int, flight: SliBatch | None) -> None:
        blob = None if flight is None else msgspec.msgpack.encode(flight)
        self._db.execute("UPDATE sender SET sequence = ?, flight = ?", (sequence, blob))

    def _keep_small(self, now_unix_s: float, dropped: Counter[str]) -> None:
        dropped["too_old"] += self._drop(before=now_unix_s - _KEEP_S)
        for namespace, excess in self._above_shares("rows", CAPACITY_ROWS).items():
            dropped["no_room"] += self._drop(most=excess, namespace=namespace)
        while self._used_bytes() > _CAPACITY_BYTES and (held := self._by_namespace("rows", "sum(length(body))")):
            gone = self._drop(most=BATCH_ROWS, namespace=max(held, key=lambda name: held[name]))
            self._check_gone(gone, gone or 1)
            dropped["no_room"] += gone

    def _drop(self, *, before: float = math.inf, most: float = math.inf, namespace: str | None = None) -> int:
        """Delete rows, of one namespace if it is given, the oldest first, remembering what is missing now; return how
        many."""
        query = """SELECT rowid, key, body FROM rows WHERE minute < ?1 AND (?2 IS NULL OR namespace(key) = ?2)
            ORDER BY minute, key LIMIT ?3"""
        gone = 0
        while gone < most:
            some = before, namespace, min(most - gone, BATCH_ROWS)
            if not (found := self._db.execute(query, some).fetchall()):
                break
            self._tell_missing((key, missing(_row(body))) for _, key, body in found)
            deleted = self._db.executemany("DELETE FROM rows WHERE rowid = ?", ((row[0],) for row in found))
            self._check_gone(deleted.rowcount, len(found))
            gone += len(found)
        return gone

    def _tell_missing(self, lost: Iterable[tuple[bytes, int]]) -> None:
        query = "INSERT INTO missing VALUES (?, ?) ON CONFLICT DO UPDATE SET exchanges = exchanges + excluded.exchanges"
        self._db.executemany(query, ((key, n) for key, n in lost if n))
        oldest = "SELECT key FROM missing WHERE namespace(key) = ? ORDER BY rowid LIMIT ?"
        query = f"DELETE FROM missing WHERE key IN ({oldest})"  # noqa: S608 - of ours
        self._db.executemany(query, self._above_shares("missing", _MISSING).items())

    def _missing(self) -> dict[bytes, int]:
        return dict(self._db.execute("SELECT key, exchanges FROM missing").fetchall())

    def _rows(self) -> Iterator[SliRow]:
        return (_row(body) for (body,) in self._db.execute("SELECT body FROM rows"))

    def _sender(self) -> tuple[str, int, bytes | None]:
        found = self._db.execute("SELECT * FROM sender").fetchone()
        if found is None:
            raise SpoolDamagedError(f"{self._path}: no sender")
        return msgspec.convert(found, tuple[str, int, bytes | None])

    def _count(self, table: str = "rows") -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - one of ours

    def _above_shares(self, table: str, most: int) -> dict[str, int]:
        """Return how many entries each namespace has above its share, if there are more than `most`."""
        if self._count(table) <= most:
            return {}
        held = self._by_namespace(table, "count(*)")
        given = shares(held, most)
        return {name: n - given[name] for name, n in held.items() if n > given[name]}

    def _by_namespace(self, table: str, what: str) -> dict[str, int]:
        query = f"SELECT namespace(key), {what} FROM {table} GROUP BY 1"  # noqa: S608 - of ours
        return dict(self._db.execute(query).fetchall())

    def _check_gone(self, deleted: int, rows: int) -> None:
        """Refuse a file whose rows do not go: they would be handed over, or dropped, without end."""
        if deleted != rows:
            raise SpoolDamagedError(f"{self._path}: {deleted} of {rows} rows could be taken out")

    def _used_bytes(self) -> int:
        pages = self._pragma("page_count") - self._pragma("freelist_count")
        return int(pages * self._pragma("page_size"))

    def _pragma(self, name: str) -> Any:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _changes(self, *, synced: bool = False) -> Iterator[Counter[str]]:
        """A transaction; yields what it drops, by reason."""
        dropped: Counter[str] = Counter()
        with spool_file.failures(self._path):
            self._db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield dropped
                stored = self._count()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._stored = stored
        self._dropped.update(+dropped)


def _key(row: SliRow) -> bytes:
    return msgspec.msgpack.encode(key_of(row))


def _namespace(key: bytes) -> str:
    try:
        return msgspec.msgpack.decode(key, type=ObjectiveKey).namespace
    except (*UNREADABLE, TypeError):
        return ""  # what is damaged is found out where it is sent


def _row(body: object) -> SliRow:
    if not isinstance(body, bytes):
        raise msgspec.ValidationError("a row is none")
    return msgspec.msgpack.decode(body, type=SliRow)


def _lacking(row: SliRow, lost: int) -> SliRow:
    """Return a row that says that so many exchanges more of its objective are in no count."""
    if not lost:
        return row
    coverage = msgspec.structs.replace(row.coverage, lost=row.coverage.lost + lost)
    return msgspec.structs.replace(row, coverage=coverage)


def _without_peers(row: SliRow) -> SliRow:
    return msgspec.structs.replace(row, by_peer={})
