"""Programs are loaded beside the loop: the kernel's verifier may take seconds, in which the rings must be drained."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound="Closable")


class Closable(Protocol):
    """What is loaded."""

    def close(self) -> None:
        """Detach and free it."""


def background() -> Executor:
    """Return one thread, which begins with the first task."""
    return ThreadPoolExecutor(1, "load")


def discard(loading: Future[_C]) -> None:
    """Close what nobody wants any more; waits for what has begun."""
    if not loading.cancel() and loading.exception() is None:
        loading.result().close()


class FakeBackground(Executor):
    """For tests: does each task at once, or when `go()` says so."""

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._tasks: list[Callable[[], None]] = []

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Return its outcome, which is there already unless it waits."""
        future: Future[_T] = Future()

        def task() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except Exception as error:  # as an executor does
                    future.set_exception(error)

        self._tasks.append(task)
        if not self._waits:
            self.go()
        return future

    def go(self) -> None:
        """Do what waits."""
        while self._tasks:
            self._tasks.pop(0)()
