"""How much processor time a piece of work may take, held by a timer of this process. Of the main thread only."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLong(BaseException):
    """The time is used up."""


@contextmanager
def cpu_budget(seconds: float) -> Iterator[None]:
    """Raise TooLong inside when the time is used up; a call into C first returns."""

    def used_up(_: int, __: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, used_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
