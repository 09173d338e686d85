"""The file of waiting rows (spool.py), opened for its owner alone; trouble that may pass is told from damage."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from latencyprobe.errors import LatencyProbeError
from latencyprobe.wire import UNREADABLE

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")  # the last: a name in the schema is another one


class SpoolError(LatencyProbeError):
    """The file cannot be used now."""


class SpoolDamagedError(SpoolError):
    """The file is of no use."""


def connect(path: Path | None) -> sqlite3.Connection:
    """Return a connection to a file, which is made where there is none, or to memory."""
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():  # closing a file that SQLite has open would give its lock away
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    name = ":memory:" if path is None else str(path)
    db = sqlite3.connect(name, timeout=0, isolation_level=None, check_same_thread=False)
    db.text_factory = partial(str, encoding="utf-8", errors="replace")  # damage makes text of what is none
    return db


@contextmanager
def failures(path: Path | None) -> Iterator[None]:
    """Raise SpoolError, with the file, for whatever SQLite, the system and msgspec complain of."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        damaged = getattr(error, "sqlite_errorname", "").startswith(_DAMAGED)
        kind = SpoolDamagedError if damaged else SpoolError
        raise kind(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except UNREADABLE as error:
        raise SpoolDamagedError(f"{path}: {error}") from error
