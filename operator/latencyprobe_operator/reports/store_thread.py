"""The SLI store in a thread of its own: waiting for the disk and reading for a report would stop the event loop.

One thread, so calls keep their order and the store sees one writer. Raises StoreError as the store does.
"""

import asyncio
from collections.abc import Callable
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

    async def add_batch(self, node: str, batch: SliBatch) -> int:
        """Store a batch; returns the next sequence number that will be taken."""
        return await self.run(self.store.add_batch, node, batch)


class FakeStoreThread(StoreThread):
    """A StoreThread for tests that has no store: it keeps `batches`."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, SliBatch]] = []

    async def add_batch(self, node: str, batch: SliBatch) -> int:
        """Keep a batch; returns the next sequence number."""
        self.batches.append((node, batch))
        return batch.sequence + 1
