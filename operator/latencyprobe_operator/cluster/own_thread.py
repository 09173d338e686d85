"""Calls in a thread of their own, one after the other, for which the end of the process does not wait.

For those of a ThreadPoolExecutor it does, and a disk or a server may let one of them hang for ever.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")


class OwnThread:
    """A daemon thread of that name, from the first call to `end`. Calls are given to it by one thread."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._ended = False

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Run a call after those before it, unless it is cancelled first. Raises RuntimeError after the end."""
        if self._ended:
            raise RuntimeError(f"the thread {self._thread.name} has ended")
        if self._thread.ident is None:
            self._thread.start()
        future: Future[R] = Future()
        self._calls.put((future, call))
        return future

    def end(self) -> None:
        """Let it end after the calls so far. Nobody waits for that."""
        self._ended = True
        self._calls.put(None)

    def _work(self) -> None:
        while (one := self._calls.get()) is not None:
            _finish(*one)
            del one  # while it waits for the next it keeps nothing of this one


def _finish(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
