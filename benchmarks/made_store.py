"""Stores of many objectives and many days for benchmarks: synthetic counts, put in by the store's own way of writing.

The first series are written minute by minute (what is older than minutes are kept for: hour by hour), under a played
clock, and compacted as the operator does. The others are copies of their rows: as many bytes, as dear to read.
"""

import random
import sqlite3
from pathlib import Path

from latencyprobe.plan import Role
from latencyprobe.sli import HISTOGRAM_SCALE, Coverage, EvidenceCount, PressureTime, SliRow, SlowExchange
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S
from latencyprobe.store import SqliteStore
from latencyprobe.store.levels import HOURS_KEPT_S, MINUTES_KEPT_S
from latencyprobe.store.schema import COUNT_COLUMNS

EVENTS = 300  # of a minute
WRITTEN = 4  # series; the others are copies
_BAD = 0.0008
_STAGES = ("receive", "read_delay", "process", "send")
_FIRST_BUCKET, _SPREAD = round(-9.5 * 2**HISTOGRAM_SCALE), 0.4 * 2**HISTOGRAM_SCALE  # 1.4 ms, a factor of 1.3
_TABLES = {"counts": f"{', '.join(COUNT_COLUMNS)}, detail", "exemplars": "exemplars"}


def objective(number: int, window: str = "90d") -> Objective:
    """Return one of many, 100 to a namespace."""
    key = ObjectiveKey(f"shop-{number // 100}", "checkout", "u1", f"o{number}", "h1", Role.SERVER)
    return Objective(key, "cart", 25_000_000, "99.9", window, 100, errors_count_as_bad=True)


def make(path: Path, objectives: int, days: int, now: int, window: str = "90d") -> None:
    """Write a store with the counts of `days` up to `now` (Unix s) for each of the objectives."""
    clock = Clock(now - days * DAY_S)
    made = [objective(number, window) for number in range(objectives)]
    with SqliteStore(path, clock=clock, steady=clock) as store:
        for namespace in {one.key.namespace for one in made}:
            store.define(namespace, "checkout", [one for one in made if one.key.namespace == namespace])
        draw = random.Random(1)
        for start, width_s in _steps(now, days):
            clock.now = start + width_s
            if start % DAY_S == 0:
                store.compact(start)
            store.add([row(one.key, start, width_s // MINUTE_S, draw) for one in made[:WRITTEN]])
        store.compact(now)
    if objectives > WRITTEN:
        _copy(path, objectives)


def row(key: ObjectiveKey, minute: int, minutes: int, draw: random.Random) -> SliRow:
    """Return the counts of so many minutes as one row."""
    events = EVENTS * minutes
    bad = sum(draw.random() < _BAD for _ in range(EVENTS)) * minutes
    histogram: dict[int, int] = {}
    for _ in range(events if events < 1000 else 1000):
        bucket = round(draw.gauss(_FIRST_BUCKET, _SPREAD))
        histogram[bucket] = histogram.get(bucket, 0) + max(1, events // 1000)
    stage_ns = {stage: bad * draw.randrange(10**5, 10**8) for stage in _STAGES} if bad else {}
    slowest = tuple(_slow(minute, draw) for _ in range(bad and 1))
    time_us = minutes * 120_000_000
    return SliRow(
        *key,
        minute=minute,
        good=events - bad,
        bad=bad,
        histogram=histogram,
        stage_ns=stage_ns,
        dominant={"process": bad} if bad else {},
        coverage=Coverage(events + 3, 0, 3, 0, 0, events // 3, minutes * 60_000, minutes * 60_000),
        slowest=slowest,
        peers={"shop/frontend": bad} if bad else {},
        evidence={"retransmits": EvidenceCount(bad, bad, bad * 10**8)} if bad else {},
        exclusions={"setup": 3},
        pressure={kind: PressureTime(time_us // 50, time_us, 0, 0) for kind in ("cpu", "io")},
    )


class Clock:
    """A clock that is played."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def _steps(now: int, days: int) -> list[tuple[int, int]]:
    """Return the rows that are written, start and width: as fine as what is kept of them, not finer."""
    found, start = [], now - days * DAY_S
    while start < now:
        old_s = now - start
        width_s = (
            6 * HOUR_S if old_s > HOURS_KEPT_S + DAY_S else HOUR_S if old_s > MINUTES_KEPT_S + HOUR_S else MINUTE_S
        )
        found.append((start, width_s))
        start += width_s
    return found


def _slow(minute: int, draw: random.Random) -> SlowExchange:
    stages = {stage: draw.randrange(10**5, 10**8) for stage in _STAGES}
    duration_ns = sum(stages.values())
    return SlowExchange(f"{draw.getrandbits(128):032x}", minute * 10**9, duration_ns, stages, "shop/frontend")


def _copy(path: Path, objectives: int) -> None:
    db = sqlite3.connect(path)
    ids = [
        next(db.execute("SELECT id FROM series WHERE objective = ?", (objective(number).key.objective,)))[0]
        for number in range(objectives)
    ]
    for number, copy in enumerate(ids[WRITTEN:], WRITTEN):
        source = ids[number % WRITTEN]
        for table, columns in _TABLES.items():
            query = f"SELECT ?, width_s, start, {columns} FROM {table} WHERE series = ?"
            db.execute(f"INSERT INTO {table} {query}", (copy, source))
        first = "UPDATE series SET first_minute = (SELECT first_minute FROM series WHERE id = ?) WHERE id = ?"
        db.execute(first, (source, copy))
    db.commit()
    db.close()


def bytes_of(path: Path) -> dict[int, tuple[int, int]]:
    """Return rows and bytes of each level of one series, by its width in seconds; blobs as they are, an integer as
    SQLite packs it."""
    db = sqlite3.connect(path)
    columns = ("series", "width_s", "start", *COUNT_COLUMNS)
    integers = " + ".join(
        f"CASE WHEN {c} IN (0, 1) THEN 1 WHEN abs({c}) < 128 THEN 2 WHEN abs({c}) < 32768 THEN 3 "
        f"WHEN abs({c}) < 8388608 THEN 4 WHEN abs({c}) < 2147483648 THEN 5 ELSE 7 END"
        for c in columns
    )
    query = f"SELECT width_s, count(*), sum({integers} + length(detail) + 3) FROM counts WHERE series = 1 GROUP BY 1"
    found = {width_s: (rows, size) for width_s, rows, size in db.execute(query)}
    db.close()
    return found
