"""Events of windows, whole or step by step, and which objectives there were when. `sqlite.py` asks here."""
# ruff: noqa: S608 - every fragment of SQL is a constant; values are always bound

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import DAY_S
from latencyprobe.store.kept import Kept
from latencyprobe.store.levels import WIDTHS_S, Span, down
from latencyprobe.store.statements import IN_SPAN
from latencyprobe.wire import UNREADABLE

log = logging.getLogger(__name__)

_BY_STEP = f"SELECT (start - ?) / ? AS step, sum(good), sum(bad) FROM counts {IN_SPAN} GROUP BY step ORDER BY step"
_DEFINED = """
    SELECT definition, retired,
        (SELECT max(start) FROM counts WHERE series = id AND width_s = ? AND start < ?) AS last
    FROM series WHERE definition IS NOT NULL AND first_minute < ? AND last IS NOT NULL ORDER BY last, NOT retired, id
"""
_LAST = """
    SELECT max((SELECT max(start) FROM counts WHERE series = id AND width_s = ?))
    FROM series WHERE namespace = ? AND NOT retired
"""
_NONE = Events(0, 0)
_Steps = list[tuple[int, int, int]]
_EVENTS = f"SELECT coalesce(sum(good), 0), coalesce(sum(bad), 0) FROM counts {IN_SPAN}"


def events(db: sqlite3.Connection, series: int, spans: Iterable[Span]) -> Events:
    """Return the events of all spans."""
    sums = [db.execute(_EVENTS, (series, *span)).fetchone() for span in spans]
    return Events(*(max(sum(column), 0) for column in zip((0, 0), *sums, strict=True)))  # see bounds.TORN


def by_step(db: sqlite3.Connection, kept: Kept, series: int, spans: Sequence[Span], step_s: int) -> list[Events]:
    """Return the events of each step from the first span's start on. A row that is wider than a step counts in the one
    in which it begins."""
    found: dict[int, Events] = {}
    steps = (spans[0].since if spans else 0, step_s)
    for span in spans:
        read = partial(_steps, db, (*steps, series, *span))
        for step, good, bad in kept.sum(_Steps, series, span, read, *steps):
            before = found.get(step)
            found[step] = Events(before.good + good, before.bad + bad) if before else Events(good, bad)
    return [found.get(step, _NONE) for step in range(max(found, default=-1) + 1)]


def _steps(db: sqlite3.Connection, asked: tuple[int, ...]) -> _Steps:
    return db.execute(_BY_STEP, asked).fetchall()


def objectives(db: sqlite3.Connection, at: int) -> tuple[Objective, ...]:
    """Return the objectives that were counted at a moment (Unix s), each as its last counts before it were defined.

    One that is retired now was counted on that day still, or on the one before.
    """
    found: dict[tuple[str, ...], Objective] = {}
    for definition, retired, last in db.execute(_DEFINED, (DAY_S, at, at)):
        if not retired or last >= down(at - 1, DAY_S) - DAY_S:
            for one in defined([definition]):
                found[one.key.namespace, one.key.probe, one.key.objective, one.key.perspective] = one
    return tuple(found.values())


def last(db: sqlite3.Connection, namespace: str) -> int | None:
    """Return when the newest row of a namespace's objectives begins, of the finest that are kept of it; `None` without
    any."""
    found = (db.execute(_LAST, (width_s, namespace)).fetchone()[0] for width_s in WIDTHS_S)
    return next((start for start in found if start is not None), None)


def defined(definitions: Iterable[bytes]) -> Iterator[Objective]:
    """Yield the objectives of definitions. One that is damaged, or another version's, is none: `define` writes it
    again."""
    for definition in definitions:
        try:
            yield msgspec.json.decode(definition, type=Objective)
        except UNREADABLE as error:
            log.warning("the definition of an objective cannot be read: %s", error)
