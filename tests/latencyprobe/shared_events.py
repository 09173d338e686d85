"""One log of events, as our own store and as a server with the agents' metrics get it.

Two agents, each of a node with a server's container, export once a minute. In the middle the container on the second
starts anew, so that its counters do, and an hour later its agent is away for ten minutes and begins with new counters.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from latencyprobe.plan import Role
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore
from tests.latencyprobe.store_rows import DAY_S, HOUR_S, MINUTE_S, Clock
from tests.support.native_writes import Histograms
from tests.support.prometheus import Series

NOW = 20_000 * DAY_S + 5 * HOUR_S
KEY = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)
OBJECTIVE = Objective(KEY, "cart", 25_000_000, "99", "7d", 100, True)
EVENTS, DURATION = "latencyprobe_slo_events_total", "latencyprobe_server_duration_seconds"
_GOOD_BUCKETS, _BAD_BUCKETS = range(-260, -200), range(-150, -140)  # about 5 ms and 40 ms
_PUSHED = 3  # turns a minute that are no event: ambiguous

Minute = dict[int, int]  # events by bucket


class Log:
    """Events of the last `minutes`, by agent and minute."""

    def __init__(self, minutes: int, *, outage: range = range(0), phase_s: tuple[int, int] = (0, 0), seed: int = 7):
        random_ = random.Random(seed)
        self.minutes, self.phase_s = minutes, phase_s
        self.first = NOW - minutes * MINUTE_S
        self.half = minutes // 2
        self.of = [[self._minute(random_, bad=i in outage) for i in range(minutes)] for _ in range(2)]
        back = self.half + min(70, minutes // 4)
        self.away = range(back - min(10, minutes // 8), back)
        for minute in self.away:
            self.of[1][minute] = {}

    def _minute(self, random_: random.Random, *, bad: bool) -> Minute:
        found: Counter[int] = Counter()
        for _ in range(random_.randrange(200, 400)):
            found[random_.choice(_BAD_BUCKETS if random_.random() < (0.6 if bad else 0.004) else _GOOD_BUCKETS)] += 1
        return found

    @property
    def total(self) -> int:
        """All events."""
        return sum(sum(minute.values()) for agent in self.of for minute in agent)

    def rows(self) -> Iterator[SliRow]:
        """What both agents hand in for each minute."""
        for i in range(self.minutes):
            for agent in self.of:
                good, bad = good_and_bad(agent[i])
                coverage = Coverage(good + bad + _PUSHED, _PUSHED)
                minute = self.first + i * MINUTE_S
                counted = {"good": good, "bad": bad, "histogram": dict(agent[i]), "coverage": coverage}
                yield SliRow(*KEY, minute=minute, **counted, exclusions={"push": _PUSHED})

    def store(self, path: Path) -> SqliteStore:
        """Our own store, of the same events."""
        clock = Clock()
        store = SqliteStore(path, clock=clock)
        rows = list(self.rows())
        for i in range(0, len(rows), 1440):
            clock.now = rows[i].minute + DAY_S / 2
            store.add(rows[i : i + 1440])
        clock.now = NOW
        store.define(KEY.namespace, KEY.probe, [OBJECTIVE])
        return store

    def series(self, key: ObjectiveKey = KEY) -> list[Series]:
        """The counters that both agents export."""
        found = []
        for node in range(2):
            labels = place(key) | {"node": str(node)}
            definition = {"latencyprobe_objective": key.objective, "latencyprobe_objective_definition": key.hash}
            side = definition | {"latencyprobe_perspective": str(key.perspective).lower()}
            for outcome in range(2):
                named = labels | side | {"latencyprobe_outcome": ("good", "bad")[outcome]}
                values = self._counter(node, [good_and_bad(minute)[outcome] for minute in self.of[node]])
                found.append(Series(EVENTS, named, values))
            reason = {"latencyprobe_role": "server", "latencyprobe_reason": "push"}
            values = self._counter(node, [_PUSHED] * self.minutes)
            found.append(Series("latencyprobe_exchange_excluded_total", labels | reason, values))
        return found

    def native(self) -> list[Histograms]:
        """The durations as Prometheus has them: running totals of each agent."""
        found = []
        for node in range(2):
            totals: Counter[int] = Counter()
            samples = []
            for i, at in self._exports(node):
                if i and self._starts(node, i - 1):
                    totals.clear()
                totals.update(self.of[node][i - 1] if i else {})
                samples.append((at, dict(totals)))
            found.append(Histograms(DURATION, place(KEY) | {"node": str(node)}, samples))
        return found

    def ranges(self) -> list[Series]:
        """The same as VictoriaMetrics has them."""
        found = []
        for node in range(2):
            for bucket in (*_GOOD_BUCKETS, *_BAD_BUCKETS):
                bounds = f"{2 ** (bucket / 32):.3e}...{2 ** ((bucket + 1) / 32):.3e}"
                values = self._counter(node, [minute.get(bucket, 0) for minute in self.of[node]])
                found.append(Series(f"{DURATION}_bucket", place(KEY) | {"node": str(node), "vmrange": bounds}, values))
        return found

    def _counter(self, node: int, per_minute: list[int]) -> list[tuple[float, float]]:
        total, samples = 0, []
        for i, at in self._exports(node):
            if i and self._starts(node, i - 1):
                total = 0
            total += per_minute[i - 1] if i else 0
            samples.append((at, total))
        return samples

    def _exports(self, node: int) -> Iterator[tuple[int, int]]:
        """When an agent exports, and how many minutes are over then."""
        for i in range(self.minutes + 1):
            if not (node == 1 and i in self.away[1:]):
                yield i, self.first + i * MINUTE_S + self.phase_s[node]

    def _starts(self, node: int, minute: int) -> bool:
        return node == 1 and minute in (self.half, self.away[-1])


def place(key: ObjectiveKey) -> dict[str, str]:
    return {
        "latencyprobe_probe_namespace": key.namespace,
        "latencyprobe_probe": key.probe,
        "latencyprobe_target": "cart",
    }


def good_and_bad(minute: Minute) -> tuple[int, int]:
    bad = sum(count for bucket, count in minute.items() if bucket in _BAD_BUCKETS)
    return sum(minute.values()) - bad, bad


def other(key: ObjectiveKey = KEY, **changed: object) -> ObjectiveKey:
    return key._replace(**changed)
