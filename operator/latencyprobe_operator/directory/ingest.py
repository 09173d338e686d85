"""SLI counts of the agents → store. Only rows of objectives that the node was asked to count are taken.

Sequence numbers and counts are stored in one transaction, so a batch that was sent twice counts once.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Set

import msgspec

from latencyprobe.plan import NodePlan
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe_operator.directory.limits import MAX_ROWS, Refused
from latencyprobe_operator.reports.expected import objective_keys
from latencyprobe_operator.reports.store_thread import StoreThread

FUTURE_S = 120  # clocks of nodes may differ by this much


class Ingest:
    """`dropped` counts rows that were not taken, by reason. `objectives`: those of all LatencyProbes."""

    def __init__(
        self,
        store_thread: StoreThread,
        objectives: Callable[[], Set[ObjectiveKey]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.accepted = 0
        self._store_thread = store_thread
        self._objectives = objectives
        self._clock = clock
        self._began = clock()
        self._asked: defaultdict[str, set[ObjectiveKey]] = defaultdict(set)

    def planned(self, plan: NodePlan) -> None:
        """Remember what a node was asked to count: rows of an earlier plan may come up to 24 h late."""
        self._asked[plan.node].update(objective_keys(plan))

    async def take(self, node: str, batch: SliBatch) -> int:
        """Store a batch; returns the next sequence number. Raises Refused (400) for a document that is wrong."""
        if len(batch.rows) > MAX_ROWS:
            raise Refused(400, f"$.rows: {len(batch.rows)} rows: at most {MAX_ROWS} in a batch")
        latest = self._clock() + FUTURE_S
        for i, row in enumerate(batch.rows):
            if row.minute % 60 or row.minute < 0:
                raise Refused(400, f"$.rows[{i}].minute: {row.minute} is not the start of a minute")
            if row.minute > latest:
                raise Refused(400, f"$.rows[{i}].minute: {row.minute} lies in the future: set the node's clock")
            if min(row.good, row.bad, *row.histogram.values(), 0) < 0:
                raise Refused(400, f"$.rows[{i}]: a count is negative")
        every = self._objectives()
        rows = tuple(row for row in batch.rows if self._takes(node, row, every))
        expected = await self._store_thread.add_batch(node, msgspec.structs.replace(batch, rows=rows))
        if expected == batch.sequence + 1:
            self.accepted += len(rows)
            self.dropped["not_asked"] += len(batch.rows) - len(rows)
        return expected

    def _takes(self, node: str, row: SliRow, every: Set[ObjectiveKey]) -> bool:
        """Return whether the node may count for this objective. Plans from before our start are not known: for minutes
        before it, any objective that exists is taken."""
        key = key_of(row)
        return key in self._asked.get(node, ()) or (key in every and row.minute < self._began)
