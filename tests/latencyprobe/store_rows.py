"""Rows and batches of one objective, as tests of the store put them in."""

import msgspec

from latencyprobe.plan import Role
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import SqliteStore

DAY_S, HOUR_S, MINUTE_S = 86400, 3600, 60
NOW = 20_000 * DAY_S + 5 * HOUR_S
KEY = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def row(minute: int = NOW, good: int = 1, bad: int = 0, key: ObjectiveKey = KEY, **more: object) -> SliRow:
    return msgspec.structs.replace(SliRow(*key, minute=minute, good=good, bad=bad), **more)


def batch(sequence: int, *rows: SliRow, instance: str = "i1") -> SliBatch:
    return SliBatch(instance, sequence, rows)


def add_batch(store: SqliteStore, node: str, one: SliBatch) -> int:
    """Add it alone, to be read at once; return the next sequence number that is taken."""
    (following,) = store.add_batches([(node, one)])
    store.settle()
    return following


def good(store: SqliteStore) -> int:
    return store.events(KEY, NOW - 90 * DAY_S, NOW + HOUR_S).good
