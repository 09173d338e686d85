"""Work that is repeated for as long as the process runs, and whose failures do not end the process.

A turn that fails is logged, counted by its loop and the class of the error, and followed by the next one. What is no
`LatencyProbeError` was not foreseen: the log has its traceback.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, NoReturn, Protocol, TypeVar

from latencyprobe.errors import LatencyProbeError
from latencyprobe_operator.cluster.api import Backoff

log = logging.getLogger(__name__)

RETRY_S = 5.0
SELDOM = 9  # times as long as a turn took
SLICE_S = 0.02  # for as long others wait: streams, heartbeats, answers

Work = Callable[[], Awaitable[None]]
T = TypeVar("T")


class Loop(Protocol):
    """Work in turns. `name`: how the log and the metrics call it."""

    @property
    def name(self) -> str: ...  # noqa: D102 - see the class

    async def due(self, *, failed: bool) -> None:
        """Wait for the next turn. `failed`: whether the last one failed."""

    async def turn(self) -> None:
        """Do the work."""


class Every:
    """A loop whose turns come with a fixed pause between them."""

    def __init__(self, name: str, pause_s: float, work: Work) -> None:
        self.name = name
        self._pause_s = pause_s
        self._work = work

    async def due(self, *, failed: bool) -> None:
        """Wait for the pause."""
        await asyncio.sleep(self._pause_s)

    async def turn(self) -> None:
        """Do the work."""
        await self._work()


class Gated:
    """A loop whose turns wait until something else allows them too."""

    def __init__(self, loop: Loop, allowed: Work) -> None:
        self.name = loop.name
        self._loop = loop
        self._allowed = allowed

    async def due(self, *, failed: bool) -> None:
        """Wait for the turn, and until it is allowed."""
        await self._loop.due(failed=failed)
        await self._allowed()

    async def turn(self) -> None:
        """Do the loop's work."""
        await self._loop.turn()


class Seldom:
    """A loop of whose time its turns are at most a tenth: the longer one takes, the longer the pause before the next,
    of `longest_s` at most. `pause_s`: how long that is now."""

    def __init__(self, loop: Loop, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = loop.name
        self.pause_s = 0.0
        self._loop = loop
        self._longest_s = longest_s
        self._clock = clock

    async def due(self, *, failed: bool) -> None:
        """Wait for the pause, then for the loop's turn."""
        await asyncio.sleep(self.pause_s)
        await self._loop.due(failed=failed)

    async def turn(self) -> None:
        """Do the loop's work."""
        began_s = self._clock()
        try:
            await self._loop.turn()
        finally:
            self.pause_s = min(self._longest_s, SELDOM * (self._clock() - began_s))


class Trigger:
    """Makes a loop's next turn due. However often it was set meanwhile, one turn follows. `set_s`: when it was first
    set for the turn that was waited for last (s, monotonic clock)."""

    def __init__(self) -> None:
        self.set_s = time.monotonic()
        self._event = asyncio.Event()
        self._first_s = self.set_s

    def set(self) -> None:
        """Make a turn due."""
        if not self._event.is_set():
            self._first_s = time.monotonic()
        self._event.set()

    async def wait(self, at_most_s: float | None = None, *, settle_s: float = 0.0) -> None:
        """Wait until it was set or the time is over, then for `settle_s` more: a burst of changes is one turn."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._event.wait()
        await asyncio.sleep(settle_s)
        self.set_s = self._first_s if self._event.is_set() else time.monotonic()
        self._event.clear()


class Loops:
    """Runs loops. `failures`: turns, or parts of them, that failed, by loop and class of the error."""

    def __init__(self) -> None:
        self.failures: Counter[tuple[str, str]] = Counter()

    async def run(self, loop: Loop) -> NoReturn:
        """Take turns until cancelled."""
        failed = False
        while True:
            await loop.due(failed=failed)
            failed = await self.attempt(loop.name, loop.turn) is not None

    async def insist(self, name: str, work: Work) -> None:
        """Do something until it works, with growing delays between the attempts."""
        backoff = Backoff()
        while (error := await self.attempt(name, work)) is not None:
            await backoff.wait(error)

    async def attempt(self, name: str, work: Work) -> Exception | None:
        """Do something once; returns what it raised."""
        try:
            await work()
        except Exception as error:
            self.failed(name, error)
            return error
        return None

    def failed(self, name: str, error: Exception, *, known: bool = False) -> None:
        """Log and count a failure; one that is `known` is counted alone."""
        self.failures[name, type(error).__name__] += 1
        if known:
            return
        foreseen = isinstance(error, LatencyProbeError)
        log.error("%s: %s", name, error if foreseen else repr(error), exc_info=None if foreseen else error)


async def in_slices(work: Generator[None, None, T]) -> T:
    """Do long work that yields now and then, and let others run every SLICE_S. Returns what it returned."""
    until_s = time.monotonic() + SLICE_S
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found
        if time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S


async def until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one of them ends, then cancel the others. Raises what that one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
