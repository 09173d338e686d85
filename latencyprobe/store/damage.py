"""Damaged files: moved aside with what belongs to them, a few of them kept, so that somebody may look at them.

`opening.py` moves while it is the file's one writer. The name tells when: `sli.db.damaged-20260102T030405.678Z`.
"""

import datetime
from pathlib import Path
from typing import NamedTuple

KEPT = 2  # they take room that new counts may need
_MARK = ".damaged-"
_FORMAT = "%Y%m%dT%H%M%S.%f"
_PARTS = ("-wal", "-shm", "")  # the file itself last: a log that outlived it would be replayed into the new one


class Moved(NamedTuple):
    """A damaged file, and when it was moved aside (Unix s)."""

    path: Path
    at: float


def move_aside(path: Path, now: float) -> Path:
    """Move a file and its log aside, and delete the oldest of those moved before; returns where it is now."""
    for old in moved(path)[KEPT - 1 :]:
        for part in _PARTS:
            old.path.with_name(old.path.name + part).unlink(missing_ok=True)
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime(_FORMAT)[:-3]
    target = path.with_name(f"{path.name}{_MARK}{stamp}Z")
    for part in _PARTS:
        if (file := path.with_name(path.name + part)).exists():
            file.rename(target.with_name(target.name + part))
    return target


def moved(path: Path) -> list[Moved]:
    """Return the damaged files that were moved aside, the last one first."""
    found = []
    for file in path.parent.glob(f"{path.name}{_MARK}*Z"):
        try:
            at = datetime.datetime.strptime(file.name.removeprefix(path.name + _MARK), f"{_FORMAT}%z")
        except ValueError:
            continue
        found.append(Moved(file, at.timestamp()))
    return sorted(found, key=lambda one: one.at, reverse=True)
