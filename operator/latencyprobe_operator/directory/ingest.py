"""SLI counts of the agents → store. Only rows of objectives that the node was asked to count are taken, and only with
what an honest agent may say (`latencyprobe.bounds`). The others are dropped by reason; the rest of their batch is kept.

Sequence numbers and counts are stored in one transaction, so a batch that was sent twice counts once.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Set

import msgspec

from latencyprobe.bounds import Impossible, bounded
from latencyprobe.plan import NodePlan
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey, key_of
from latencyprobe_operator.directory.limits import MAX_INSTANCE, MAX_ROWS, MAX_SEQUENCE, Refused
from latencyprobe_operator.reports.expected import objective_keys
from latencyprobe_operator.reports.store_thread import StoreThread

log = logging.getLogger(__name__)

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
        self._logged: set[tuple[str, str]] = set()

    def planned(self, plan: NodePlan) -> None:
        """Remember what a node was asked to count: rows of an earlier plan may come up to 24 h late."""
        self._asked[plan.node].update(objective_keys(plan))

    async def take(self, node: str, batch: SliBatch) -> int:
        """Store a batch; returns the next sequence number. Raises Refused (400) for a document that is wrong."""
        if len(batch.rows) > MAX_ROWS:
            raise Refused(400, f"$.rows: {len(batch.rows)} rows: at most {MAX_ROWS} in a batch")
        if not 0 <= batch.sequence <= MAX_SEQUENCE:
            raise Refused(400, f"$.sequence: {batch.sequence} is not from 0 to {MAX_SEQUENCE}")
        if len(batch.instance) > MAX_INSTANCE:
            raise Refused(400, f"$.instance: {len(batch.instance)} characters: at most {MAX_INSTANCE}")
        rows, dropped = self._sorted_out(node, batch.rows)
        expected = await self._store_thread.add_batch(node, msgspec.structs.replace(batch, rows=rows))
        if expected == batch.sequence + 1:
            self.accepted += len(rows)
            self.dropped.update(dropped)
        return expected

    def _sorted_out(self, node: str, rows: Iterable[SliRow]) -> tuple[tuple[SliRow, ...], Counter[str]]:
        """Return the rows that may be stored, and how many may not, by reason."""
        every, latest = self._objectives(), self._clock() + FUTURE_S
        kept: list[SliRow] = []
        dropped: Counter[str] = Counter()
        for row in rows:
            if not self._takes(node, row, every):
                dropped["not_asked"] += 1
                continue
            try:
                if row.minute > latest:
                    raise Impossible("future", f"minute {row.minute} has not come yet: set the node's clock")
                kept.append(bounded(row))
            except Impossible as error:
                reason = error.field if error.field == "future" else f"impossible_{error.field}"
                dropped[reason] += 1
                if (node, reason) not in self._logged:
                    self._logged.add((node, reason))
                    log.warning("%s: SLI rows of its agent are dropped: %s (%s)", node, error, row.objective)
        return tuple(kept), dropped

    def _takes(self, node: str, row: SliRow, every: Set[ObjectiveKey]) -> bool:
        """Return whether the node may count for this objective. Plans from before our start are not known: for minutes
        before it, any objective that exists is taken."""
        key = key_of(row)
        return key in self._asked.get(node, ()) or (key in every and row.minute < self._began)
