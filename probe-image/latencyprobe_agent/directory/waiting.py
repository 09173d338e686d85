"""What waits for the directory: on disk while that works, else in memory. Nothing that the disk does ends measuring.

Two threads of the uplink call it: one takes rows in, one hands them over.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe_agent.directory.spool import Spool
from latencyprobe_agent.directory.spool_file import SpoolDamagedError, SpoolError

_log = logging.getLogger(__name__)
_RETRY_S = 60.0
_FILE = "counts.db"


class WaitingRows:
    """`dropped`: rows that nobody gets, by reason; `problem`: why the folder is not used, empty while it is."""

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self.dropped: Counter[str] = Counter()
        self.problem = ""
        self._path = state_dir / _FILE
        self._clock = clock
        self._began = clock() - _boot_s()
        self._memory = Spool(None, self.dropped)
        self._disk: Spool | None = None
        self._retry_s = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many are known to wait; never waits itself."""
        disk = self._disk
        return self._memory.waiting + (disk.waiting if disk else 0)

    def open(self) -> None:
        """Use the folder, if it can be used now, and take in what an earlier process has left there."""
        with self._lock:
            self._open()

    def close(self) -> None:
        """Let another process have the folder."""
        with self._lock:
            if self._disk:
                self._disk.close()
            self._disk, self._retry_s = None, math.inf

    def add(self, rows: Iterable[SliRow]) -> None:
        """Take rows in."""
        rows = list(rows)
        with self._lock:
            self._open()
            try:
                (self._disk or self._memory).add(rows, self._now())
            except SpoolError as error:
                self._give_up(error)
                self._memory.add(rows, self._now())

    def batch(self, *, whole_minutes: bool = False) -> SliBatch | None:
        """Return what is to be sent now, the same until it is `answered` or `refused`; None without any rows.
        `whole_minutes`: nothing of the minute that is not over."""
        but = int(self._clock()) // MINUTE_S * MINUTE_S if whole_minutes else None
        with self._lock:
            if self._disk and not self._memory.flight:
                try:
                    if self._memory.waiting:
                        self._disk.take_over(self._memory, self._now())
                    return self._disk.batch(but)
                except SpoolError as error:
                    self._give_up(error)
            return self._memory.batch(but)

    def answered(self, expected: int) -> None:
        """Take the number that the directory expects next."""
        self._settle(lambda sender: sender.answered(expected))

    def refused(self) -> None:
        """Drop the batch: the directory will never take it."""
        self._settle(Spool.refused)

    def _settle(self, change: Callable[[Spool], None]) -> None:
        with self._lock:
            sender = self._memory if self._memory.flight else self._disk
            try:
                if sender and sender.flight:  # else the disk failed meanwhile: it will be sent again, and counts once
                    change(sender)
            except SpoolError as error:
                self._give_up(error)

    def _open(self) -> None:
        if self._disk or time.monotonic() < self._retry_s:
            return
        try:
            self._disk = Spool(self._path, self.dropped)
        except SpoolError as error:
            self._give_up(error)
            return
        if self.problem:
            _log.info("%s: used again", self._path)
        self.problem = ""

    def _give_up(self, error: SpoolError) -> None:
        """Go on in memory, and try again in a minute, with a new file in the place of one that is of no use."""
        self._retry_s = time.monotonic() + _RETRY_S
        if self._disk:
            self._disk.close()
        if isinstance(error, SpoolDamagedError):
            self.dropped["damaged"] += max(1, self._disk.waiting if self._disk else 0)
            self._set_aside()
        self._disk = None
        if str(error) != self.problem:
            self.problem = str(error)
            _log.error("%s: SLI counts wait in memory, which a restart loses", error, exc_info=error)

    def _set_aside(self) -> None:
        try:
            self._path.replace(self._path.with_suffix(".damaged"))
            for journal in ("-wal", "-shm"):
                self._path.with_name(f"{_FILE}{journal}").unlink(missing_ok=True)
        except OSError as error:
            _log.error("%s: cannot be set aside: %s", self._path, error.strerror)

    def _now(self) -> float:
        """Return Unix seconds. A clock that jumps ahead makes no row old."""
        return min(self._clock(), self._began + _boot_s())


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
