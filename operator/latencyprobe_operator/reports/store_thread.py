"""The SLI store in a thread of its own: waiting for the disk and reading for a report would stop the event loop.

One thread, so calls keep their order and the store sees one writer. Raises StoreError as the store does.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

from latencyprobe.sli import SliBatch
from latencyprobe.store import SqliteStore

P = ParamSpec("P")
R = TypeVar("R")


class StoreThread:
    """Calls on a store, one after the other: `async with` opens and closes it."""

    def __init__(self, open_store: Callable[[], SqliteStore]) -> None:
        self._open = open_store
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def __aenter__(self) -> Self:
        self.store = await self.run(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.run(self.store.close)
        self._thread.shutdown()

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def compact(self) -> None:
        """Delete what is older than it has to be kept."""
        await self.run(self.store.compact, int(time.time()))

    async def add_batches(self, batches: Sequence[tuple[str, SliBatch]]) -> list[int]:
        """Store batches of nodes; returns the next sequence number that will be taken from each."""
        return await self.run(self.store.add_batches, batches)


class FakeStoreThread(StoreThread):
    """A StoreThread for tests that has no store: it keeps `batches`."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, SliBatch]] = []

    async def add_batches(self, batches: Sequence[tuple[str, SliBatch]]) -> list[int]:
        """Keep batches; returns the next sequence numbers."""
        self.batches += batches
        return [batch.sequence + 1 for _, batch in batches]
