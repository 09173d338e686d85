"""Which node was asked to count which objectives, and since when: kept in the store, so that counts of minutes from
before the operator's start are taken from those nodes alone that were asked for them.
"""

import time
from collections import defaultdict
from collections.abc import Callable

from latencyprobe.plan import NodePlan
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import HOUR_S, MINUTE_S
from latencyprobe_operator.reports.expected import objective_keys
from latencyprobe_operator.reports.store_thread import StoreThread

CLOCKS_S = 120  # clocks of nodes may differ by this much
SAVE_S = 5.0
_SLICE = 100  # nodes that are stored at once


class Asked:
    """`known`: whether it was read from the store what was asked for before our start. Times are Unix s."""

    def __init__(self, store_thread: StoreThread, clock: Callable[[], float] = time.time) -> None:
        self.known = False
        self._store_thread = store_thread
        self._clock = clock
        self._since: defaultdict[str, dict[ObjectiveKey, int]] = defaultdict(dict)
        self._now: dict[str, frozenset[ObjectiveKey]] = {}
        self._unsaved: set[str] = set()
        self._saved_hour = 0

    def planned(self, plan: NodePlan) -> None:
        """Take note of what a node is asked for from now on."""
        keys = frozenset(objective_keys(plan))
        if keys != self._now.get(plan.node, frozenset()):
            self._now[plan.node] = keys
            self._unsaved.add(plan.node)
            since, now = self._since[plan.node], int(self._clock())
            for key in keys:
                since.setdefault(key, now)

    def includes(self, node: str, key: ObjectiveKey, minute: int) -> bool:
        """Return whether a node may have counted an objective in a minute. What it is not asked for any more is
        included for two days: it may be late, or may not have heard yet."""
        since = self._since.get(node, {}).get(key)
        return since is not None and minute + MINUTE_S > since - CLOCKS_S

    async def save(self) -> None:
        """Store what is new. At first, and each hour, all of it is stored and read again, which forgets what nobody was
        asked for since. Raises StoreError; the next call makes up for it."""
        run, store, hour = self._store_thread.run, self._store_thread.store, int(self._clock()) // HOUR_S
        whole = hour != self._saved_hour
        nodes = sorted(self._now if whole else self._unsaved)
        for first in range(0, len(nodes), _SLICE):
            asked = {node: self._now[node] for node in nodes[first : first + _SLICE]}
            await run(store.ask, asked)
            self._unsaved -= {node for node, keys in asked.items() if self._now[node] == keys}
        if whole:
            stored = await run(store.asked)
            for node, since in stored.items():  # a store that was begun anew knows less than we do
                known = self._since.get(node, {})
                since.update((key, known[key]) for key in since.keys() & known.keys() if known[key] < since[key])
            self._since = defaultdict(dict, stored)
            for node in self._unsaved:  # planned while the store was read
                self._since[node] = dict.fromkeys(self._now[node], int(self._clock())) | self._since[node]
            self._now = {node: keys for node, keys in self._now.items() if keys or node in self._unsaved}
            self.known, self._saved_hour = True, hour
