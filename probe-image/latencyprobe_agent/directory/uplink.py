"""Hands status and SLI counts to the directory in one thread, so that a slow operator never delays measuring.

One batch is in flight and keeps its sequence number until it is accepted, so an answer that was lost on the way counts
nothing twice (docs/design/directory.md, "Sequence numbers").
"""

import logging
import threading
import time
from collections.abc import Iterable

import msgspec

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe_agent.directory.client import Directory, DocumentError
from latencyprobe_agent.directory.pending import PendingRows, PendingStatus

_log = logging.getLogger(__name__)
_RETRY_S = 2.0


class Uplink:
    """`problem`: why the directory does not take what is sent, empty while it does."""

    def __init__(self, directory: Directory, instance: str, *, status_interval_s: float) -> None:
        self.problem = ""
        self._directory = directory
        self._instance = instance
        self._sequence = 0
        self._flight: SliBatch | None = None
        self._rows = PendingRows()
        self._status = PendingStatus(status_interval_s)
        self._stopped = False
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="uplink", daemon=True)

    @property
    def dropped(self) -> int:
        """Rows that the directory never got."""
        return self._rows.dropped

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def add(self, rows: Iterable[SliRow]) -> None:
        """Queue rows; equal objective and minute are added up."""
        with self._lock:
            self._rows.add(rows, time.time())
            self._lock.notify()

    def report(self, status: AgentStatus) -> None:
        """Replace the status to be sent; a changed one goes at once."""
        with self._lock:
            self._status.replace(status)
            self._lock.notify()

    def stop(self, timeout_s: float) -> None:
        """Send what is left, for at most `timeout_s`."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopped or self._due(), timeout=1.0)
                if not self._due():
                    if self._stopped:
                        return
                    continue
            try:
                self._send_status()
                while self._send_rows():
                    pass
                self.problem = ""
            except DirectoryError as error:
                if str(error) != self.problem:
                    self.problem = str(error)
                    _log.warning("%s; counts wait up to 24 h", error)
                with self._lock:
                    if self._stopped:
                        return
                    self._lock.wait_for(lambda: self._stopped, timeout=_RETRY_S)

    def _due(self) -> bool:
        return bool(self._rows or self._flight or self._status.due(time.monotonic()))

    def _send_status(self) -> None:
        status = self._status.due(time.monotonic())
        if status is None:
            return
        try:
            self._directory.status(status)
        except DocumentError as error:  # says it again at the next interval; the counts go on
            _log.error("status refused: %s", error)
        self._status.sent(status, time.monotonic())

    def _send_rows(self) -> bool:
        """Send one batch. Return whether there was one."""
        if self._flight is None:
            with self._lock:
                rows = self._rows.take()
            if not rows:
                return False
            self._flight = SliBatch(self._instance, self._sequence, rows)
        try:
            expected = self._directory.sli(self._flight).expected
        except DocumentError as error:
            _log.error("SLI counts of %d rows dropped: %s", len(self._flight.rows), error)
            self._rows.dropped += len(self._flight.rows)
            self._flight = None
            return True
        if expected > self._flight.sequence:
            self._sequence, self._flight = expected, None
        else:  # a gap: the directory has forgotten a batch of ours, say after its store was restored
            self._flight = msgspec.structs.replace(self._flight, sequence=expected)
        return True
