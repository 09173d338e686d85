"""Processes whose time passes only when a test says so: an hour takes seconds, and a busy machine makes nobody late.

As a program, `played_time.py FILE COMMAND...` runs a Python command whose clocks are the number in FILE, which a test
moves on when all event loops of the process have nothing left to do at that time. What waits without an event loop, the
disk for instance, takes no time; calls of the store's thread are waited for.
"""

import asyncio
import mmap
import os
import runpy
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from latencyprobe_operator.cluster.own_thread import OwnThread

T = TypeVar("T")

LOOPS = 15  # of a process, at most
_PID, _BEGAN = 1 + LOOPS, 2 + LOOPS
_IDLE_S = 0.002  # for so long nothing happens to a loop that has nothing left to do
_CLOSED = 2**63 - 1
_PATIENCE_S = 120.0
_HOST_UP_NS = 1000 * 10**9  # no more, as event loops compare times to the ns


def _words(file: Path) -> memoryview:
    """Return the numbers that a test and its process share: the time in ns, of each loop when it was idle last, the
    process, and the wall clock at time 0."""
    with file.open("r+b") as shared:
        return memoryview(mmap.mmap(shared.fileno(), 8 * (_BEGAN + 1))).cast("q")


class Clock:
    """The time of some processes, in s since the test began. `step_s`: passes at once."""

    def __init__(self, step_s: float = 0.25) -> None:
        self.s = 0.0
        self._step_s = step_s
        self._began_ns = time.time_ns()
        self._of: dict[Path, memoryview] = {}

    def unix_s(self) -> float:
        """Return the processes' wall clock."""
        return (self._began_ns + self._ns()) / 1e9

    def new(self, file: Path) -> tuple[str, ...]:
        """Return the words before a command whose clocks shall be this one, from now on."""
        file.write_bytes(bytes(8 * (_BEGAN + 1)))
        self.wait_again(file)
        self._of[file][_BEGAN] = self._began_ns
        return sys.executable, __file__, str(file)

    def leave(self, file: Path) -> None:
        """Wait no more for a process that stands still."""
        self._of.pop(file, None)

    def wait_again(self, file: Path) -> None:
        """Wait for one that stood still: it finds that time has passed."""
        self._of[file] = _words(file)
        self._of[file][0] = self._ns()

    async def step(self) -> None:
        """Let some time pass, once everybody has done what was to be done until now."""
        until_s = time.monotonic() + _PATIENCE_S
        for words in list(self._of.values()):
            while not _idle(words):
                assert time.monotonic() < until_s, f"a process is busy for ever at {self.s} s: {list(words)}"
                await asyncio.sleep(_IDLE_S)
        self.s += self._step_s
        for words in self._of.values():
            words[0] = self._ns()
        await asyncio.sleep(0)

    async def pass_s(self, seconds: float) -> None:
        """Let so much time pass."""
        until_s = self.s + seconds
        while self.s < until_s:
            await self.step()

    async def until(self, condition: Callable[[], Any], what: str, most_s: float) -> float:
        """Let time pass until a condition holds; returns how much."""
        began_s = self.s
        while not condition():
            assert self.s - began_s < most_s, f"not within {most_s} s: {what}"
            await self.step()
        return self.s - began_s

    async def while_it_passes(self, work: Coroutine[Any, Any, T]) -> T:
        """Let time pass until some work is done; returns what it returned."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.step()
        return task.result()

    def _ns(self) -> int:
        return _HOST_UP_NS + round(self.s * 1e9)


def _idle(words: memoryview) -> bool:
    """Whether each loop of a process has been idle since the time was changed, and there is one; or it has ended."""
    if words[_PID] and not Path(f"/proc/{words[_PID]}").exists():
        return True
    loops = [at for at in words[1:_PID] if at]
    return any(at != _CLOSED for at in loops) and min(loops) >= words[0]


def play(file: Path) -> None:
    """Take the time of this process from a file."""
    words = _words(file)
    words[_PID] = os.getpid()
    taken: dict[int, int] = {}  # place of a loop, by its selector
    select, close = selectors.EpollSelector.select, selectors.EpollSelector.close
    at_work: set[Future[Any]] = set()
    submit = OwnThread.submit

    def submitted(self: OwnThread, call: Callable[[], T]) -> Future[T]:
        future = submit(self, call)
        at_work.add(future)
        future.add_done_callback(at_work.discard)
        return future

    def selected(self: selectors.EpollSelector, timeout: float | None = None) -> Any:
        place = taken.setdefault(id(self), len(taken) + 1)
        if timeout is not None and timeout <= 0:
            return select(self, 0)
        now, busy = words[0], bool(at_work)
        events = select(self, _IDLE_S)
        if not events and not busy:
            words[place] = now
        return events

    def closed(self: selectors.EpollSelector) -> None:
        if id(self) in taken:
            words[taken[id(self)]] = _CLOSED
        close(self)

    OwnThread.submit = submitted  # type: ignore[method-assign]
    selectors.EpollSelector.select = selected  # type: ignore[method-assign]
    selectors.EpollSelector.close = closed  # type: ignore[method-assign]
    time.monotonic, time.monotonic_ns = lambda: words[0] / 1e9, lambda: words[0]
    time.time, time.time_ns = lambda: (words[_BEGAN] + words[0]) / 1e9, lambda: words[_BEGAN] + words[0]
    time.clock_gettime, time.clock_gettime_ns = lambda _: words[0] / 1e9, lambda _: words[0]


if __name__ == "__main__":
    play(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
