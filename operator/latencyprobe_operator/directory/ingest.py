"""SLI counts of the agents → store. Only rows of objectives that the node was asked to count are taken, and only with
what an honest agent may say (`latencyprobe.bounds`). The others are dropped by reason; the rest of their batch is kept.

Sequence numbers and counts are stored in one transaction, so a batch that was sent twice counts once.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable

import msgspec

from latencyprobe.bounds import Impossible, bounded
from latencyprobe.sli import SliAnswer, SliBatch, SliRow
from latencyprobe.slo.objective import key_of
from latencyprobe.store.recent import KEPT_S
from latencyprobe.store.sqlite import LATE_S
from latencyprobe_operator.cluster.loops import in_slices
from latencyprobe_operator.directory.asked import CLOCKS_S, Asked
from latencyprobe_operator.directory.intake import MAX_WAITING_ROWS, WAITING_ROW_BYTES, Intake
from latencyprobe_operator.directory.limits import MAX_INSTANCE, MAX_ROWS, MAX_SEQUENCE, Bucket, ByNode, Refused
from latencyprobe_operator.directory.pacing import Pacing
from latencyprobe_operator.reports.store_thread import StoreThread

log = logging.getLogger(__name__)

ROWS_PER_S, ROWS_AT_ONCE = 1_000, 20_000  # of one node: at once all that may wait in its agent
ROW_BYTES = 3 << 10  # a document is at least as many rows: to decode it takes as long, whatever is in it


class Ingest:
    """`dropped` counts rows that were not taken, by reason, `said` which of these the log has named, of each node;
    `rows`: how many more each may hand in; `pacing`: how often agents come. `nodes`: how many nodes must measure."""

    def __init__(
        self,
        store_thread: StoreThread,
        clock: Callable[[], float] = time.time,
        *,
        nodes: Callable[[], int] = lambda: 0,
        dropped: Counter[str] | None = None,
    ) -> None:
        self.dropped: Counter[str] = Counter() if dropped is None else dropped
        self.said = ByNode(set[str])
        self.rows = ByNode(lambda: Bucket(ROWS_PER_S, ROWS_AT_ONCE))
        self.accepted = 0
        self.asked = Asked(store_thread, clock)
        self.pacing = Pacing(nodes, lambda: self.intake.rows / MAX_WAITING_ROWS)
        self.intake = Intake(store_thread.add_batches, lambda: self.pacing.next_s)
        self._clock = clock

    def admit(self, node: str, size: int) -> None:
        """Let a document of `size` bytes come in. Raises Refused: 429 when the node has handed in too much."""
        rows = self.rows.of(node)
        if rows.empty():
            raise Refused(429, f"more than {ROWS_PER_S} rows a second: slow down", rows.wait_s)
        rows.spend(size / ROW_BYTES)

    async def take(self, node: str, batch: SliBatch, size: int = 0) -> SliAnswer:
        """Store a batch that was admitted as `size` bytes; returns which is next, and when. Raises Refused: 400 for a
        document that is wrong, 503 when too much waits for the store, or nobody knows yet what the node was asked for.
        """
        self.rows.of(node).spend(max(0.0, len(batch.rows) - size / ROW_BYTES))
        if len(batch.rows) > MAX_ROWS:
            raise Refused(400, f"$.rows: {len(batch.rows)} rows: at most {MAX_ROWS} in a batch")
        if not 0 <= batch.sequence <= MAX_SEQUENCE:
            raise Refused(400, f"$.sequence: {batch.sequence} is not from 0 to {MAX_SEQUENCE}")
        if len(batch.instance) > MAX_INSTANCE:
            raise Refused(400, f"$.instance: {len(batch.instance)} characters: at most {MAX_INSTANCE}")
        if not self.asked.known:
            raise Refused(503, "the store is being opened: try again", self.pacing.next_s)
        room = max(len(batch.rows), size // WAITING_ROW_BYTES)
        with self.intake.room(room):
            rows, dropped = await in_slices(self._sorted_out(node, batch.rows))
        with self.intake.room(room - len(rows)):  # what is dropped lives as long as its batch
            expected = await self.intake.add(node, msgspec.structs.replace(batch, rows=rows))
        if expected == batch.sequence + 1:
            self.accepted += len(rows) - dropped["late"]
            self.dropped.update(dropped)
        return SliAnswer(expected, self.pacing.next_s)

    def _sorted_out(
        self, node: str, rows: Iterable[SliRow]
    ) -> Generator[None, None, tuple[tuple[SliRow, ...], Counter[str]]]:
        """Return the rows that may be stored, and how many may not, by reason."""
        now = self._clock()
        kept: list[SliRow] = []
        dropped: Counter[str] = Counter()
        for row in rows:
            yield
            if not self.asked.includes(node, key_of(row), row.minute):
                dropped["not_asked"] += 1
                continue
            try:
                if row.minute > now + CLOCKS_S:
                    raise Impossible("future", f"minute {row.minute} has not come yet: set the node's clock")
                kept.append(_as_wanted(bounded(row), now))
                dropped["late"] += row.minute < now - LATE_S  # the store refuses it, and its coverage knows
            except Impossible as error:
                reason = error.field if error.field == "future" else f"impossible_{error.field}"
                dropped[reason] += 1
                if reason not in self.said.of(node):
                    self.said.of(node).add(reason)
                    log.warning("%s: SLI rows of its agent are dropped: %s (%s)", node, error, row.objective)
        return tuple(kept), +dropped


def _as_wanted(row: SliRow, now: float) -> SliRow:
    """Return a row without the figures by peer that come too late to be kept: what waits for the store has less room
    than what waits in agents."""
    return msgspec.structs.replace(row, by_peer={}) if row.by_peer and row.minute < now - KEPT_S else row
