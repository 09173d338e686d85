"""The SLI store in a thread of its own: waiting for the disk and reading for a report would stop the event loop.

One thread, so calls keep their order and the store sees one writer. Raises StoreError as the store does. One that
cannot be used ends nothing: it is tried again until it can, and may be read meanwhile if that works.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn, ParamSpec, Self, TypeVar

from latencyprobe.errors import StoreError
from latencyprobe.sli import SliBatch
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.api import Backoff
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.own_thread import OwnThread
from latencyprobe_operator.reports.store_file import StoreFile

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

OPENING_S = 60.0  # who waits for the first attempt waits no longer
CLOSING_S = 5.0  # as does the end of the process
_STEADY_S = 60.0  # one that worked for so long is not tried less often than one that never failed


class StoreThread:
    """Calls on a store, one after the other: `async with` opens and closes it, `keep` mends it. For what it is opened
    by see StoreFile.

    `problem`: why it takes no counts, None while it does; `changed`: set when that becomes another; `failures`: by
    reason."""

    def __init__(
        self, open_store: Callable[..., SqliteStore], open_to_read: Callable[[], SqliteStore] | None = None
    ) -> None:
        self.problem: StoreError | None = StoreError("the SLI store is still being opened and checked", "StoreFailed")
        self.changed = Trigger()
        self.failures: Counter[str] = Counter()
        self.file = StoreFile(open_store, open_to_read)
        self._tried, self._works, self._away = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._backoff, self._since_s = Backoff(), time.monotonic()
        self._thread = OwnThread("store")

    async def __aenter__(self) -> Self:
        try:
            await self._mend("")
        except BaseException:
            self._thread.submit(self.file.close)  # whenever it has been opened
            self._thread.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.problem = StoreError("the SLI store is being closed: the operator ends", "StoreFailed")
        closing = asyncio.wrap_future(self._thread.submit(self.file.close))
        self._thread.end()
        closed, _pending = await asyncio.wait([closing], timeout=CLOSING_S)
        if not closed:
            log.warning("the SLI store does not close within %g s: nobody waits for it any longer", CLOSING_S)

    @property
    def store(self) -> SqliteStore:
        """The store, for whoever writes. Raises StoreError while it takes nothing."""
        if self.problem is not None:
            raise StoreError(str(self.problem), self.problem.reason)
        assert self.file.opened is not None
        return self.file.opened

    @property
    def readable(self) -> SqliteStore | None:
        """The store, for whoever reads what was stored before; None where that cannot be read."""
        return self.file.opened

    async def tried(self) -> None:
        """Wait until it was opened or could not be, but not for longer than `OPENING_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OPENING_S):
                await self._tried.wait()

    async def works(self) -> None:
        """Wait until it takes counts."""
        await self._works.wait()

    async def keep(self) -> NoReturn:
        """Try again, with growing delays, whenever it takes no counts."""
        while True:
            await self._away.wait()
            assert self.problem is not None
            await self._backoff.wait(self.problem)
            await self._mend(self.problem.reason)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call in the store's thread."""
        try:
            return await asyncio.wrap_future(self._thread.submit(partial(call, *args, **kwargs)))
        except StoreError as error:
            if error.reason and self.problem is None:
                self._failed(error)
            raise

    async def compact(self) -> None:
        """Delete what is older than it has to be kept."""
        await self.run(self.store.compact, int(time.time()))

    async def add_batches(self, batches: Sequence[tuple[str, SliBatch]]) -> list[int]:
        """Store batches of nodes; returns the next sequence number that will be taken from each."""
        return await self.run(self.store.add_batches, batches)

    async def _mend(self, reason: str) -> None:
        """Open it, or try whether it takes counts again."""
        error = await self.run(self.file.mend, reason)
        self._tried.set()
        if error is not None:
            self._failed(error)
            return
        self.problem, self._since_s = None, time.monotonic()
        self._works.set()
        if self._away.is_set():
            log.info("the SLI store takes counts again")
            self._away.clear()
            self.changed.set()

    def _failed(self, error: StoreError) -> None:
        again = self.problem is not None and self.problem.reason == error.reason
        if self.problem is None and time.monotonic() - self._since_s > _STEADY_S:
            self._backoff.reset()
        if not again or not self._away.is_set():
            log.error("%s; counts wait in the agents", error)
            self.changed.set()
        self.failures[error.reason] += 1
        self.problem = StoreError(str(error), error.reason)
        self._works.clear()
        self._away.set()


class FakeStoreThread(StoreThread):
    """A StoreThread for tests that has no store: it keeps `batches`."""

    def __init__(self) -> None:
        super().__init__(SqliteStore)
        self.batches: list[tuple[str, SliBatch]] = []

    async def add_batches(self, batches: Sequence[tuple[str, SliBatch]]) -> list[int]:
        """Keep batches; returns the next sequence numbers."""
        self.batches += batches
        return [batch.sequence + 1 for _, batch in batches]
