"""Programs are loaded beside the loop: the kernel's verifier may take seconds, in which the rings must be drained."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, Protocol, TypeVar


class Closable(Protocol):
    """What is loaded."""

    def close(self) -> None:
        """Detach and free it."""


_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=Closable)


def background() -> Executor:
    """Return one thread, which begins with the first task."""
    return ThreadPoolExecutor(1, "load")


class Loading(Generic[_C]):
    """What `executor` is loading, or has loaded and nobody has taken yet, by name."""

    def __init__(self, load: Callable[..., _C], executor: Executor) -> None:
        self._load = load
        self._executor = executor
        self._begun: dict[str, Future[_C]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._begun

    def __iter__(self) -> Iterator[str]:
        return iter(self._begun)

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, name: str, *args: Any) -> None:
        """Load this, unless that has begun."""
        if name not in self._begun:
            self._begun[name] = self._executor.submit(self._load, *args)

    def is_over(self, name: str) -> bool:
        """Return whether there is something to take."""
        return name in self._begun and self._begun[name].done()

    def take(self, name: str) -> _C:
        """Return what was loaded, once it is. Raises what loading it raised."""
        return self._begun.pop(name).result()

    def discard(self, name: str) -> None:
        """Close what nobody wants any more, as soon as it is loaded: the end of the executor waits for that."""
        begun = self._begun.pop(name)
        if not begun.cancel():
            begun.add_done_callback(_close)

    def close(self) -> None:
        """Discard all."""
        for name in list(self._begun):
            self.discard(name)


def _close(loaded: Future[_C]) -> None:
    if loaded.exception() is None:
        loaded.result().close()


class FakeBackground(Executor):
    """For tests: does each task at once, or when `go()` says so. `begun`: what became of each."""

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._tasks: list[Callable[[], None]] = []
        self.begun: list[Future[Any]] = []

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Return its outcome, which is there already unless it waits."""
        future: Future[_T] = Future()
        self.begun.append(future)

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
