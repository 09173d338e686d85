"""Which node was asked to count which objectives, and since when: kept in the store, so that counts of minutes from
before the operator's start are taken from those nodes alone that were asked for them.
"""

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence

from latencyprobe.plan import NodePlan
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import HOUR_S, MINUTE_S
from latencyprobe.store.asked import Time
from latencyprobe.store.sqlite import LATE_S
from latencyprobe_operator.directory.former import Former, Once
from latencyprobe_operator.plan.targets import finished
from latencyprobe_operator.reports.expected import objective_keys
from latencyprobe_operator.reports.store_thread import StoreThread

log = logging.getLogger(__name__)

CLOCKS_S = 120  # clocks of nodes may differ by this much
SAVE_S = 5.0
FORMER = 100_000  # what nodes are asked for no more, of all of them, at least: 30 MB, and 8 MB in the store
_SLICE, _SLICE_ROWS = 100, 5_000  # nodes that are stored at once, and what is taken off


class Asked:
    """`known`: whether it was read from the store what was asked for before our start. Times are Unix s."""

    def __init__(self, store_thread: StoreThread, clock: Callable[[], float] = time.time) -> None:
        self.known = False
        self._store_thread = store_thread
        self._clock = clock
        self._now: dict[str, dict[ObjectiveKey, int]] = {}  # since when; a node's is replaced, never changed
        self._first = 0  # when the first plan was made
        self._former = Former()
        self._most = 0  # that nodes were asked for at once, of late
        self._surplus = _Surplus()
        self._unsaved: set[str] = set()
        self._saved_hour = 0

    def planned(self, *plans: NodePlan) -> None:
        """Take note of what nodes are asked for from now on."""
        finished(self.work(plans))

    def work(self, plans: Sequence[NodePlan]) -> Generator[None, None, None]:
        """Do all of `planned`; a `yield` is where others may run."""
        now = int(self._clock())
        self._first = self._first or now
        for plan in plans:
            self._planned(plan.node, frozenset(objective_keys(plan)), now)
            yield
        self._most = max(self._most, sum(map(len, self._now.values())))
        self._bound()
        if len(self._surplus.rows) > FORMER:  # the store is away: once it is back, it tells itself what it has
            self._surplus.rows.clear()
            self._saved_hour = 0

    def includes(self, node: str, key: ObjectiveKey, minute: int) -> bool:
        """Return whether a node may have counted an objective in a minute. What it is not asked for any more is
        included for two days, if there is room: it may be late, or may not have heard yet. Nobody was asked in the
        future: where it looks so, our clock was ahead then."""
        since = self._now.get(node, {}).get(key)
        if since is None:
            since = self._former.since(Once(node, key))
        return since is not None and minute + MINUTE_S > min(since, self._clock()) - CLOCKS_S

    async def save(self) -> None:
        """Store what is new. At first, and each hour, all of it is stored and read again, which forgets what nobody was
        asked for since. Raises StoreError; the next call makes up for it."""
        run, store, hour = self._store_thread.run, self._store_thread.store, int(self._clock()) // HOUR_S
        whole = hour != self._saved_hour
        if not self.known:
            self._reach_back(await run(store.asked))
        await self._unask()
        nodes = sorted(self._now if whole else self._unsaved)
        for first in range(0, len(nodes), _SLICE):
            asked = {node: self._now[node] for node in nodes[first : first + _SLICE]}
            await run(store.ask, asked)
            self._unsaved -= {node for node, keys in asked.items() if self._now[node] is keys}
        if whole:
            self._read(await run(store.asked))
            self.known, self._saved_hour = True, hour
            await self._unask()

    def _reach_back(self, stored: Mapping[str, Mapping[ObjectiveKey, Time]]) -> None:
        """Take what our first plan asks for as asked for since the store last took note of somebody, if it knows no
        better: the process before us may have asked for it after that, while the store was away."""
        latest = max((last for times in stored.values() for _, last in times.values()), default=self._first)
        since = max(min(latest, self._first), int(self._clock()) - LATE_S)
        for node, keys in self._now.items():
            self._now[node] = {key: since if at == self._first else at for key, at in keys.items()}

    def _planned(self, node: str, keys: frozenset[ObjectiveKey], now: int) -> None:
        before = self._now.get(node, {})
        if keys == before.keys():
            return
        self._now[node] = {key: before.get(key) or self._former.pop(Once(node, key)) or now for key in keys}
        self._unsaved.add(node)
        for key in before.keys() - keys:
            self._former.put(Once(node, key), before[key])

    async def _unask(self) -> None:
        """Take off the store what there was no room for."""
        run, store = self._store_thread.run, self._store_thread.store
        while some := self._surplus.rows[:_SLICE_ROWS]:
            await run(store.unask, [once for once in some if once.key not in self._now.get(once.node, {})])
            del self._surplus.rows[: len(some)]

    def _read(self, stored: Mapping[str, Mapping[ObjectiveKey, Time]]) -> None:
        """Take over what the store knows. One that was begun anew knows less than we do."""
        known, self._former = self._former, Former()
        former, latest = [], 0
        for node, times in stored.items():
            lasts = [last for _, last in times.values()]
            latest += lasts.count(max(lasts))  # its last plan, which may be of before a suspension, or of our start
            now = self._now.get(node, {})
            if earlier := {key: since for key, (since, _) in times.items() if since < now.get(key, 0)}:
                self._now[node] = now | earlier
            former += [(last, Once(node, key), since) for key, (since, last) in times.items() if key not in now]
        for _, once, since in sorted(former, key=lambda one: one[0]):
            self._former.put(once, min(since, known.since(once) or since))
        self._now = {node: keys for node, keys in self._now.items() if keys or node in self._unsaved}
        self._most = max(latest, sum(map(len, self._now.values())))
        self._bound()

    def _bound(self) -> None:
        """Forget what there is no room for: all plans may change at once, and then be suspended."""
        self._surplus.add(self._former.take_surplus(max(FORMER, 2 * self._most)))


class _Surplus:
    """`rows`: what was forgotten and the store may still have. Its namespaces are told in the log, each once."""

    def __init__(self) -> None:
        self.rows: list[Once] = []
        self._told: set[str] = set()

    def add(self, forgotten: list[Once]) -> None:
        """Take what there was no room for."""
        self.rows += forgotten
        for namespace in {once.key.namespace for once in forgotten} - self._told:
            self._told.add(namespace)
            why = "its objectives, or the nodes that they are on, change so often"
            log.warning("%s: %s that late counts of earlier ones are dropped", namespace, why)
