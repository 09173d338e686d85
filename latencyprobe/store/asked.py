"""Which node was asked to count which objectives, and since when: so that an agent's late counts can be told from
counts of what was never its own, also after the operator was started anew.
"""

import sqlite3
from collections.abc import Iterable, Mapping

from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import DAY_S
from latencyprobe.store.schema import KEY_COLUMNS

KEPT_S = 2 * DAY_S  # counts come up to a day late
_READ = f"SELECT node, since, {', '.join(KEY_COLUMNS)} FROM asked JOIN series ON id = series"  # noqa: S608 - constants
_REMEMBER = "INSERT INTO asked VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last"


def remember(db: sqlite3.Connection, nodes: Mapping[str, Iterable[int]], now: int) -> None:
    """Take note that nodes are asked now, at `now` in Unix s, for these series."""
    db.executemany(_REMEMBER, [(node, series, now, now) for node, ids in nodes.items() for series in ids])


def read(db: sqlite3.Connection) -> dict[str, dict[ObjectiveKey, int]]:
    """Return since when (Unix s) each node was asked for what."""
    found: dict[str, dict[ObjectiveKey, int]] = {}
    for node, since, *key in db.execute(_READ):
        found.setdefault(node, {})[ObjectiveKey(*key)] = since
    return found


def forget(db: sqlite3.Connection, now: int) -> None:
    """Delete what was asked for so long ago that nobody has counts of it any more."""
    db.execute("DELETE FROM asked WHERE last < ?", (now - KEPT_S,))
