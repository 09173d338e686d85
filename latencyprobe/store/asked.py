"""Which node was asked to count which objectives, and since when: so that an agent's late counts can be told from
counts of what was never its own, also after the operator was started anew.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import DAY_S
from latencyprobe.store.schema import KEY_COLUMNS

KEPT_S = 2 * DAY_S  # counts come up to a day late
_KEYS = f"SELECT id, {', '.join(KEY_COLUMNS)} FROM series WHERE id IN (SELECT series FROM asked)"  # noqa: S608 - constants
_READ = "SELECT node, series, since, last FROM asked WHERE series IN (SELECT id FROM series)"
_REMEMBER = "INSERT INTO asked VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last"


class Time(NamedTuple):
    """Since when a node was asked for something, and when last, in Unix s."""

    since: int
    last: int


def remember(
    db: sqlite3.Connection,
    nodes: Mapping[str, Mapping[ObjectiveKey, int]],
    now: int,
    id_of: Callable[[ObjectiveKey], int],
) -> None:
    """Take note that nodes are asked now, at `now` in Unix s, and since when, if nothing is known of that."""
    asked = [(node, id_of(key), since, now) for node, keys in nodes.items() for key, since in keys.items()]
    db.executemany(_REMEMBER, asked)


def unask(db: sqlite3.Connection, gone: Iterable[tuple[str, int]]) -> None:
    """Delete that nodes were asked for these series."""
    db.executemany("DELETE FROM asked WHERE node = ? AND series = ?", gone)


def read(db: sqlite3.Connection) -> dict[str, dict[ObjectiveKey, Time]]:
    """Return when each node was asked for what. What is equal is one object: there is a row for each of them both."""
    keys = {series: ObjectiveKey(*key) for series, *key in db.execute(_KEYS)}
    times: dict[Time, Time] = {}
    found: dict[str, dict[ObjectiveKey, Time]] = {}
    for node, series, *when in db.execute(_READ):
        time = Time(*when)
        found.setdefault(node, {})[keys[series]] = times.setdefault(time, time)
    return found


def forget(db: sqlite3.Connection, now: int) -> None:
    """Delete what was asked for so long ago that nobody has counts of it any more."""
    db.execute("DELETE FROM asked WHERE last < ?", (now - KEPT_S,))
