"""How a command that runs until somebody ends it takes SIGINT and SIGTERM."""

import signal
from collections.abc import Callable
from types import FrameType


class ending:  # noqa: N801 - reads as a statement
    """Within it, the first SIGINT or SIGTERM calls `stop`. The second one ends the process at once, as any does
    outside (`latencyprobe/cli.py`)."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, _: int, __: FrameType | None) -> None:
        self.__exit__()
        self._stop()
