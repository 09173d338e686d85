"""Batches of SLI rows on their way into the store: what comes while one commit is written, and shortly after, goes into
the next, so that neither the number of times that the disk is waited for nor that of rows that are written, which the
store adds up first, grows with the number of agents.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from latencyprobe.errors import StoreError
from latencyprobe.sli import SliBatch
from latencyprobe_operator.directory.limits import MAX_ROWS, Refused

log = logging.getLogger(__name__)

MAX_WAITING_ROWS = 2 * MAX_ROWS  # some two seconds of the store's time
WAITING_ROW_BYTES = 2_000  # of JSON: longer ones count for more. In memory they are 7 to 9 times as long
GATHER_S = 0.2  # after a commit while which others came: twenty of them cost little more than one
MAX_COMMIT_ROWS = 5_000  # then others that want the store have their turn


class _Waiting(NamedTuple):
    node: str
    batch: SliBatch
    stored: asyncio.Future[int]


class Intake:
    """Takes batches as long as there is room. `store`: stores batches of nodes together, all or none, and returns the
    next sequence number of each; `retry_after_s`: when who found no room may come again."""

    def __init__(
        self,
        store: Callable[[Sequence[tuple[str, SliBatch]]], Awaitable[list[int]]],
        retry_after_s: Callable[[], float],
    ) -> None:
        self.commits = 0
        self.rows = 0  # that wait, or are on their way here
        self._store = store
        self._retry_after_s = retry_after_s
        self._waiting: deque[_Waiting] = deque()
        self._committing: asyncio.Task[None] | None = None

    @contextmanager
    def room(self, rows: int) -> Iterator[None]:
        """Count rows that are in memory beside those that `add` has. Raises Refused (503) when there are too many."""
        self._admit(rows)
        self.rows += rows
        try:
            yield
        finally:
            self.rows -= rows

    async def add(self, node: str, batch: SliBatch) -> int:
        """Return the next sequence number once a batch is stored. Raises Refused (503) when too many wait, and what
        the store raises."""
        self._admit(len(batch.rows))
        one = _Waiting(node, batch, asyncio.get_running_loop().create_future())
        self.rows += len(batch.rows)
        self._waiting.append(one)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all())
        return await one.stored

    def _admit(self, rows: int) -> None:
        if self.rows + rows > MAX_WAITING_ROWS:
            raise Refused(503, f"{self.rows} SLI rows wait for the disk already", self._retry_after_s())

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                group = self._group()
                try:
                    await self._commit(group)
                finally:
                    self.rows -= sum(len(one.batch.rows) for one in group)
                    for one in group:
                        one.stored.cancel()  # nobody waits for ever, whatever happened
                if self._waiting:
                    await asyncio.sleep(GATHER_S)
        finally:
            self._committing = None

    async def _commit(self, group: list[_Waiting]) -> None:
        self.commits += 1
        try:
            expected = await self._store([(one.node, one.batch) for one in group])
        except StoreError as error:
            for one in group:
                _give(one, error)
        except Exception as error:
            if len(group) == 1:
                log.exception("%s: its SLI rows cannot be stored", group[0].node)
                _give(group[0], error)
                return
            for one in group:  # the one that raises keeps nobody else's out
                await self._commit([one])
        else:
            for one, number in zip(group, expected, strict=True):
                _give(one, number)

    def _group(self) -> list[_Waiting]:
        """Take what goes into one commit, in the order in which it came."""
        group = [self._waiting.popleft()]
        rows = len(group[0].batch.rows)
        while self._waiting and rows + len(self._waiting[0].batch.rows) <= MAX_COMMIT_ROWS:
            group.append(self._waiting.popleft())
            rows += len(group[-1].batch.rows)
        return group


def _give(one: _Waiting, answer: int | Exception) -> None:
    if one.stored.done():  # whoever asked has gone
        return
    if isinstance(answer, Exception):
        one.stored.set_exception(answer)
    else:
        one.stored.set_result(answer)
