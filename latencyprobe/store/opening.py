"""The store's file: opened for its one writer or for a reader, and refused where it is not ours, newer or damaged.

`connect` gives sqlite.py a connection to tables of the current version; `failures` words what goes wrong with the file.
"""

import errno
import fcntl
import logging
import os
import pwd
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from latencyprobe.errors import StoreError
from latencyprobe.store import damage, packing
from latencyprobe.store.schema import MIGRATIONS

log = logging.getLogger(__name__)

_MAGIC, _HEADER = b"SQLite format 3\0", 100  # bytes
_APPLICATION_ID = 0x4C504231  # "LPB1": another program's database is refused
_SUDO = "measured with sudo? then `sudo latencyprobe report`"
_NEW = "move it away, and a new one is begun"
FULL, DAMAGED, FAILED = "StoreFull", "StoreDamaged", "StoreFailed"  # reasons of StoreError
_OF_THE_DISK = (
    *("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"),
    *("SQLITE_PROTOCOL", "SQLITE_BUSY", "SQLITE_LOCKED"),
)
_COLUMNS = """
    SELECT t.name, c.name, c.type, c."notnull", c.pk FROM sqlite_master t, pragma_table_info(t.name) c
    WHERE t.type = 'table'
"""
_OF_SQLITE = (sqlite3.Error, UnicodeDecodeError)  # the latter where damage is quoted in the message of the former
_ROOM = 64 << 10
_REMEDIES = {
    FULL: "free some space; what was stored before stays readable",
    DAMAGED: _NEW,
    "SQLITE_READONLY": "make its volume writable; what was stored before stays readable",
    "SQLITE_CANTOPEN": "check that its folder is there and that you may read and write in it",
}


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a standalone agent keeps its counts (XDG base directory specification)."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/")) / ".local" / "state"
    return Path(state) / "latencyprobe" / "sli.db"


def connect(
    path: Path, *, readonly: bool, move_damaged: bool = False, thorough: bool = False
) -> tuple[sqlite3.Connection, IO[bytes] | None]:
    """Return a connection, and for a writer its claim: no other can write until that is closed.

    Opening for writing creates and migrates the file; with `move_damaged` a damaged one is moved aside before; with
    `thorough` its indexes are looked at too. Raises StoreError.
    """
    if readonly and not os.access(path, os.R_OK):
        raise StoreError(f"{path}: {_unreadable(path)}")
    with failures(path, FAILED), ExitStack() as undo:
        if readonly:
            return _reader(path), None
        claim = undo.enter_context(_claim(path))
        try:
            db = _writer(path, thorough)
        except (StoreError, *_OF_SQLITE) as error:
            if not move_damaged or reason(error, path) != DAMAGED:
                raise
            log.error("%s: it is %s now, and a new one is begun", error, damage.move_aside(path, time.time()).name)
            _create(path)
            db = _writer(path, thorough)
        undo.pop_all()
    return db, claim


def _unreadable(path: Path) -> str:
    """Return why a store cannot be read, and what to do: who measures is root, most often, and has another store."""
    if _may_be_there(path):
        return f"you may not read it: {_SUDO}, or give --store"
    roots = default_path({"HOME": pwd.getpwuid(0).pw_dir})
    sudo = f"; {_SUDO}" if os.geteuid() and path == default_path() and _may_be_there(roots) else ""
    return f"no such store: measure with `latencyprobe run --port PORT` first, or give --store{sudo}"


def _may_be_there(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:  # only root may know
        return True
    except OSError:
        return False
    return True


@contextmanager
def failures(path: Path, otherwise: str = "") -> Iterator[None]:
    """Raise StoreError, with the file, the remedy and the reason, for whatever SQLite and the system complain of.
    `otherwise`: the reason where what they say is of no reason, so that it is about the call alone."""
    try:
        yield
    except (*_OF_SQLITE, OSError) as error:
        why, name = reason(error, path) or otherwise, getattr(error, "sqlite_errorname", "")
        if isinstance(error, OSError) and error.errno == errno.EROFS:
            name = "SQLITE_READONLY"
        remedy = _REMEDIES.get(why) or _REMEDIES.get(name) or "check the file, its folder and the disk"
        raise StoreError(f"{path}: {error}: {remedy}", why) from error


@contextmanager
def readable() -> Iterator[None]:
    """Raise StoreError, of one series alone, for a blob that cannot be."""
    try:
        yield
    except packing.Unreadable as error:
        raise StoreError(f"its counts are broken ({error}): give the objective another name to begin anew") from error


@contextmanager
def alone(db: sqlite3.Connection, path: Path, what: object, undone: Callable[[], None]) -> Iterator[None]:
    """Undo, of a transaction, only what raises here, and log that `what` is lost; then call `undone`. Raises what is of
    the whole store."""
    db.execute("SAVEPOINT alone")
    try:
        yield
    except Exception as error:
        if reason(error, path):
            raise
        log.exception("this cannot be stored, and is lost: %s", what)
        db.execute("ROLLBACK TO alone")
        undone()
    db.execute("RELEASE alone")


def reason(error: Exception, path: Path) -> str:
    """Return what an error says of the whole store, empty where it is about the call alone."""
    if isinstance(error, StoreError):
        return error.reason
    if isinstance(error, OSError):
        return FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else FAILED
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, UnicodeDecodeError) or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DAMAGED
    if name.startswith(_OF_THE_DISK):
        return FULL if name == "SQLITE_FULL" or _no_room(path) else FAILED
    return ""


def damaged(path: Path, what: object) -> StoreError:
    """Return the error of a damaged file."""
    return StoreError(f"{path}: damaged ({what}): {_NEW}", DAMAGED)


def _no_room(path: Path) -> bool:
    """Return whether the disk is full, which SQLite calls an I/O error where it maps files."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _ROOM


def _reader(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads. A volume that cannot be written has no room for the shared memory of a log,
    but without a log the file is all there is."""
    _check_header(path)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    log_file = path.with_name(f"{path.name}-wal")
    try:
        return _checked(uri, path)
    except sqlite3.OperationalError:
        if log_file.exists() and log_file.stat().st_size:
            raise
        return _checked(f"{uri}&immutable=1", path)


def _writer(path: Path, thorough: bool) -> sqlite3.Connection:
    _check_header(path)
    db = _checked(f"file:{quote(str(path.absolute()))}?mode=rw", path)
    try:
        _check_integrity(db, path, "integrity_check(1)" if thorough else "quick_check(1)")
        db.create_function("add_details", 2, packing.add_details, deterministic=True)
        db.create_function("add_exemplars", 2, packing.add_exemplars, deterministic=True)
        _migrate(db)
        _check_columns(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _checked(uri: str, path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    db.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged name is nobody's
    try:
        _check_version(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _claim(path: Path) -> IO[bytes]:
    """Create the file for its owner alone, and become its one writer."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(f"{path.name}.lock")
    for file in (path, lock):  # whoever may open the lock may hold it
        _create(file)
    writer = lock.open("ab")
    try:
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        writer.close()
        raise StoreError(f"{path}: in use by another process: end it, or give another --store", FAILED) from error
    return writer


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _check_header(path: Path) -> None:
    """Refuse other files, before SQLite takes one of less than a page for an empty database."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if not header or (header.startswith(_MAGIC) and len(header) == _HEADER):
        return
    if _MAGIC.startswith(header[: len(_MAGIC)].rstrip(b"\0")):  # what a crash of the host may leave
        raise damaged(path, "it is cut, or begins with zeros")
    raise StoreError(f"{path}: not a store: give another path", FAILED)


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
    if application != _APPLICATION_ID and _pragma(db, "schema_version"):
        raise StoreError(f"{path}: another program's database: give another path", FAILED)
    if version > len(MIGRATIONS):
        known = f"has schema {version}, this version knows up to {len(MIGRATIONS)}"
        raise StoreError(f"{path}: {known}: upgrade LatencyProbe", FAILED)


def _check_integrity(db: sqlite3.Connection, path: Path, check: str) -> None:
    if (found := _pragma(db, check)) != "ok":
        raise damaged(path, found)


def _check_columns(db: sqlite3.Connection, path: Path) -> None:
    """Find words that damage has changed in the schema, which SQLite takes for other names or for none."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as whole:
        _migrate(whole)
        missing = {*whole.execute(_COLUMNS)}.difference(db.execute(_COLUMNS))
    if missing:
        raise damaged(path, f"no column {' '.join(map(str, min(missing)))}")


def _pragma(db: sqlite3.Connection, name: str) -> Any:
    return db.execute(f"PRAGMA {name}").fetchone()[0]


def _migrate(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # an accepted batch is forgotten by its agent
    version = _pragma(db, "user_version")
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        stamp = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {number}"
        db.executescript(f"BEGIN IMMEDIATE; {script}; {stamp}; COMMIT")
