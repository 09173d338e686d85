"""SLI counts of the agents → store. Only rows of objectives that the node was asked to count are taken.

`server.py` calls `take`. The store lives in one thread (`Books`), because its writes wait for the disk. Sequence
numbers and counts are stored in one transaction, so a batch that was sent twice counts once.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec

from latencyprobe.plan import NodePlan
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe_operator.books import Books
from latencyprobe_operator.directory.limits import MAX_ROWS, Refused

FUTURE_S = 120  # clocks of nodes may differ by this much

Named = tuple[str, str, str, str, str]  # namespace, probe, probe uid, objective, hash


class Ingest:
    """`dropped` counts rows that were not taken, by reason."""

    def __init__(self, books: Books, clock: Callable[[], float] = time.time) -> None:
        self.dropped: Counter[str] = Counter()
        self.accepted = 0
        self._books = books
        self._clock = clock
        self._named: defaultdict[str, set[Named]] = defaultdict(set)

    def planned(self, plan: NodePlan) -> None:
        """Remember what a node was asked to count: rows of an earlier plan may come up to 24 h late."""
        uids = {t.id: (t.namespace, t.probe, t.probe_uid) for t in plan.targets}
        self._named[plan.node].update((*uids[o.target], o.name, o.hash) for o in plan.objectives)

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
        rows = tuple(row for row in batch.rows if self._asked(node, row))
        expected = await self._books.add_batch(node, msgspec.structs.replace(batch, rows=rows))
        if expected == batch.sequence + 1:
            self.accepted += len(rows)
            self.dropped["not_asked"] += len(batch.rows) - len(rows)
        return expected

    def _asked(self, node: str, row: SliRow) -> bool:
        return (row.namespace, row.probe, row.probe_uid, row.objective, row.hash) in self._named.get(node, ())
