"""What is left of runs that crashed, and what follows: an agent that crashed twice within an hour counts alone (safe
mode), without spans, metrics and evidence, so that the node and the reports get on until somebody has looked.

Only what the process did to itself is a crash: an exception that nobody caught, or a fatal signal such as SIGSEGV or
SIGABRT. Who is killed from outside, or for want of memory, has left an empty report and does not count.
"""

import contextlib
import faulthandler
import logging
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from latencyprobe.errors import LatencyProbeError

_log = logging.getLogger(__name__)

KEPT_S = 3600
SAFE_AFTER = 2
_SHOWN = 4_000  # characters of a report, in the log


class Crashes(contextlib.AbstractContextManager["Crashes"]):
    """The reports in `folder` of runs that crashed within the last hour; within the block this run writes its own. A
    folder that cannot be used makes no difference to measuring: then there are no reports."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._report: TextIO | None = None

    def __enter__(self) -> "Crashes":
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for report in self._reports():
                if report.stat().st_size == 0 or self._age_s(report) > KEPT_S:
                    report.unlink()
            for report in self._reports()[-1:]:
                _log.error("an earlier run crashed:\n%s", report.read_text(errors="replace")[-_SHOWN:])
            self._report = open(self._folder / f"{self._clock():.6f}.{os.getpid()}", "w", opener=_to_ourselves)
            faulthandler.enable(self._report)
        except OSError as error:
            _log.warning("%s: crashes cannot be remembered: %s", self._folder, error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._report is None:
            return
        faulthandler.disable()
        crashed = isinstance(error, Exception) and not isinstance(error, LatencyProbeError)
        with contextlib.suppress(OSError), self._report:
            if crashed:
                traceback.print_exception(kind, error, where, file=self._report)
            else:
                Path(self._report.name).unlink()

    @property
    def safe_mode(self) -> str:
        """Why this agent counts alone, empty while it does everything."""
        with contextlib.suppress(OSError):
            recent = sum(self._age_s(report) <= KEPT_S for report in self._reports() if report.stat().st_size)
            if recent >= SAFE_AFTER:
                return f"it crashed {recent} times within an hour, and its log says how"
        return ""

    def _age_s(self, report: Path) -> float:
        """Return how long ago a run crashed. By a clock that was ahead it would be recent until then: it is now."""
        now_s, crashed_s = self._clock(), report.stat().st_mtime
        if crashed_s > now_s:
            with contextlib.suppress(OSError):
                os.utime(report, (now_s, now_s))
        return max(0.0, now_s - crashed_s)

    def _reports(self) -> list[Path]:
        return sorted(self._folder.iterdir())


def _to_ourselves(path: str, flags: int) -> int:
    """A crash may quote what it was about."""
    return os.open(path, flags, 0o600)
