"""Definitions that no LatencyProbe has any more, with their counts: each edit leaves one for every objective that it
changes, so the latest of each namespace are kept, and who edits without end does not fill the volume.
"""

import logging
import sqlite3

log = logging.getLogger(__name__)

KEPT = 2_000  # of a namespace
_OTHERS = """
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY namespace ORDER BY id DESC) AS place
        FROM series WHERE retired OR definition IS NULL
    ) WHERE place > ?
"""
_EMPTY = """
    DELETE FROM series WHERE (retired OR definition IS NULL)
    AND id NOT IN (SELECT series FROM counts) AND id NOT IN (SELECT series FROM asked)
"""


def forget(db: sqlite3.Connection) -> list[int]:
    """Delete the counts of all but the latest, and series without any; return whose counts (ids of series)."""
    others = [series for (series,) in db.execute(_OTHERS, (KEPT,))]
    each = [(series,) for series in others]
    db.executemany("DELETE FROM exemplars WHERE series = ?", each)
    if (rows := db.executemany("DELETE FROM counts WHERE series = ?", each).rowcount) > 0:
        log.warning("%d rows of definitions that were edited away are deleted: of a namespace %d are kept", rows, KEPT)
    db.execute(_EMPTY)
    return others
