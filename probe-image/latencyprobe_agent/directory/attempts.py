"""What a thread asks of the directory, again and again: a failure is told once, and does not end the thread."""

import logging
from collections.abc import Callable
from typing import TypeVar

from latencyprobe.errors import DirectoryError
from latencyprobe_agent.guard import Guard

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Attempts:
    """Those of one thread, which is `part` of the agent. `problem`: why the directory did not do it the last time,
    empty once it does; `retry_after_s`: for how long it wants to be left alone then, 0 where it does not say.

    `meanwhile`: what holds until it does, for the log; empty where another thread tells. Whatever else is raised is a
    defect: `guard` tells of it."""

    def __init__(self, part: str, meanwhile: str = "", guard: Guard | None = None) -> None:
        self.problem = ""
        self.retry_after_s = 0.0
        self._part = part
        self._meanwhile = meanwhile
        self._guard = guard or Guard()

    def run(self, work: Callable[[], T]) -> T | None:
        """Return what `work` returns, None if it raised."""
        return self._guard.run(self._part, lambda: self._run(work))

    def worked(self) -> None:
        """Say that it works, before `work` has ended."""
        self.problem, self.retry_after_s = "", 0.0

    def _run(self, work: Callable[[], T]) -> T | None:
        try:
            result = work()
        except DirectoryError as error:
            problem = str(error)
            if self._meanwhile and problem != self.problem:
                _log.warning("%s; %s", problem, self._meanwhile)
            self.problem, self.retry_after_s = problem, error.retry_after_s
            return None
        self.worked()
        return result
