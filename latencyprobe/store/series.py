"""The ids of series: an objective's counts stand under a number, which is asked for once. `sqlite.py` asks here."""
# ruff: noqa: S608 - every fragment of SQL is a constant; values are always bound

import sqlite3

from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import statements
from latencyprobe.store.schema import KEY_COLUMNS


class Series:
    """Those of one database."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[ObjectiveKey, int] = {}

    def id(self, key: ObjectiveKey) -> int:
        """Return the id of a series, which is begun where there is none."""
        if key not in self._ids:
            names, places = ", ".join(KEY_COLUMNS), ", ".join("?" * len(KEY_COLUMNS))
            self._db.execute(f"INSERT OR IGNORE INTO series ({names}) VALUES ({places})", key)
            self._ids[key] = self.known(key)
        return self._ids[key]

    def known(self, key: ObjectiveKey) -> int:
        """Return the id of a series, 0 (which no series has) for one without counts."""
        if known := self._ids.get(key):
            return known
        found = self._db.execute(statements.SERIES, key).fetchone()
        return int(found[0]) if found else 0

    def forget(self) -> None:
        """Ask anew: the tables may have become others."""
        self._ids.clear()
