"""The store's file: opened for its one writer or for a reader, and refused where it is not ours, newer or damaged.

`connect` gives sqlite.py a connection to tables of the current version; `failures` words what goes wrong with the file.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from latencyprobe.errors import StoreError
from latencyprobe.store import packing
from latencyprobe.store.schema import MIGRATIONS

_APPLICATION_ID = 0x4C504231  # "LPB1": another program's database is refused
_NEW = "move it away, and a new one is begun"
_REMEDIES = {
    "SQLITE_FULL": "free some space; what was stored before stays readable",
    "SQLITE_NOTADB": _NEW,
    "SQLITE_CORRUPT": _NEW,
    "SQLITE_CANTOPEN": "check that its folder is there and that you may read and write in it",
}


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a standalone agent keeps its counts (XDG base directory specification)."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/")) / ".local" / "state"
    return Path(state) / "latencyprobe" / "sli.db"


def connect(path: Path, *, readonly: bool) -> tuple[sqlite3.Connection, IO[bytes] | None]:
    """Return a connection, and for a writer its claim: no other can write until that is closed.

    Opening for writing creates and migrates the file. Raises StoreError.
    """
    if readonly and not path.exists():
        raise StoreError(f"{path}: no such store: measure with `latencyprobe run -f FILE` first, or give --store")
    with failures(path), ExitStack() as undo:
        claim = None if readonly else undo.enter_context(_claim(path))
        _check_header(path)
        uri = f"file:{quote(str(path.absolute()))}?mode={'ro' if readonly else 'rw'}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        undo.callback(db.close)
        _check_version(db, path)
        if not readonly:
            _check_integrity(db, path)
            db.create_function("add_details", 2, packing.add_details, deterministic=True)
            db.create_function("add_exemplars", 2, packing.add_exemplars, deterministic=True)
            _migrate(db)
        undo.pop_all()
    return db, claim


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Raise StoreError, with the file and the remedy, for whatever SQLite and the system complain of."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        remedy = _REMEDIES.get(getattr(error, "sqlite_errorname", ""), "check the file, its folder and the disk")
        raise StoreError(f"{path}: {error}: {remedy}") from error


def _claim(path: Path) -> IO[bytes]:
    """Create the file for its owner alone, and become its one writer."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    writer = path.with_name(f"{path.name}.lock").open("ab")
    try:
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        writer.close()
        raise StoreError(f"{path}: in use by another process: end it, or give another --store") from error
    return writer


def _check_header(path: Path) -> None:
    """Refuse other files, before SQLite takes one of less than a page for an empty database."""
    with path.open("rb") as file:
        if file.read(16) not in (b"", b"SQLite format 3\0"):
            raise StoreError(f"{path}: not a store: give another path")


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
    if application != _APPLICATION_ID and _pragma(db, "schema_version"):
        raise StoreError(f"{path}: another program's database: give another path")
    if version > len(MIGRATIONS):
        known = f"has schema {version}, this version knows up to {len(MIGRATIONS)}"
        raise StoreError(f"{path}: {known}: upgrade LatencyProbe")


def _check_integrity(db: sqlite3.Connection, path: Path) -> None:
    if (damage := _pragma(db, "quick_check(1)")) != "ok":
        raise StoreError(f"{path}: damaged ({damage}): {_NEW}")


def _pragma(db: sqlite3.Connection, name: str) -> Any:
    return db.execute(f"PRAGMA {name}").fetchone()[0]


def _migrate(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # an accepted batch is forgotten by its agent
    version = _pragma(db, "user_version")
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        stamp = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {number}"
        db.executescript(f"BEGIN IMMEDIATE; {script}; {stamp}; COMMIT")
