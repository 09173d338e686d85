"""Deletes what is older than it has to be kept. `sqlite.py` asks here."""
# ruff: noqa: S608 - every fragment of SQL is a constant; values are always bound

import sqlite3

from latencyprobe.slo.windows import DAY_S
from latencyprobe.store import asked, statements
from latencyprobe.store.levels import WIDTHS_S, Horizons, horizons

_INSTANCE_KEPT_S = 3 * DAY_S


def compact(db: sqlite3.Connection, now: int, before: Horizons) -> Horizons:
    """Delete rows of each level, and what is known of agents; return the new horizons. `now`: as late as it is believed
    to be (Unix s)."""
    kept = []
    for width_s, reached, horizon in zip(WIDTHS_S, before, horizons(now), strict=True):
        older = (width_s, max(reached, horizon))
        deleted = db.execute(f"DELETE FROM counts {statements.BEFORE}", older).rowcount
        db.execute(f"DELETE FROM exemplars {statements.BEFORE}", older)
        kept.append(max(reached, horizon) if deleted else reached)
    db.execute("UPDATE state SET minutes = ?, hours = ?, days = ?", kept)
    db.execute("DELETE FROM instances WHERE minute < ?", (now - _INSTANCE_KEPT_S,))
    asked.forget(db, now)
    return Horizons(*kept)
