"""Hands status and SLI counts to the directory in one thread, so that a slow operator never delays measuring.

The loop calls `add()` with rows and `report()` with the status. Rows that wait are merged by objective and minute; one
batch is in flight and keeps its sequence number until it is accepted, so an answer that was lost on the way counts
nothing twice (api.md section 4). What is older than 24 h or above the capacity is dropped, oldest first, and counted.
"""

import logging
import threading
import time
from collections.abc import Iterable

import msgspec

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus
from latencyprobe.sli import SliBatch, SliRow, merged
from latencyprobe_agent.directory.client import Directory, DocumentError

_log = logging.getLogger(__name__)
_BATCH_ROWS = 250  # at most 12 kB each: below the 4 MiB that the directory takes
_CAPACITY_ROWS = 20_000  # 13 objectives for 24 h, 2 kB each
_KEEP_S = 24 * 3600
_RETRY_S = 2.0

_Key = tuple[str, str, str, str, str, int]


class Uplink:
    """`dropped` counts rows that the directory never got."""

    def __init__(self, directory: Directory, instance: str, *, status_interval_s: float) -> None:
        self.dropped = 0
        self.problem = ""
        self._directory = directory
        self._instance = instance
        self._interval_s = status_interval_s
        self._sequence = 0
        self._rows: dict[_Key, SliRow] = {}
        self._flight: SliBatch | None = None
        self._status: AgentStatus | None = None
        self._told: AgentStatus | None = None
        self._told_at = 0.0
        self._stopped = False
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="uplink", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def add(self, rows: Iterable[SliRow]) -> None:
        """Queue rows; equal objective and minute are added up."""
        with self._lock:
            for row in rows:
                key = (row.namespace, row.probe_uid, row.probe, row.objective, row.hash, row.minute)
                self._rows[key] = merged(self._rows[key], row) if key in self._rows else row
            self._forget(time.time())
            self._lock.notify()

    def report(self, status: AgentStatus) -> None:
        """Replace the status to be sent; a changed one goes at once."""
        with self._lock:
            self._status = status
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
        return bool(self._rows or self._flight or self._status_due())

    def _status_due(self) -> bool:
        if self._status is None:
            return False
        said = self._told
        changed = said is None or (said.generation, said.variants, said.error) != (
            self._status.generation,
            self._status.variants,
            self._status.error,
        )
        return changed or time.monotonic() - self._told_at >= self._interval_s

    def _send_status(self) -> None:
        status = self._status
        if status is not None and self._status_due():
            self._directory.status(status)
            self._told, self._told_at = status, time.monotonic()

    def _send_rows(self) -> bool:
        """Send one batch. Return whether there was one."""
        if self._flight is None:
            with self._lock:
                keys = sorted(self._rows, key=lambda key: key[-1])[:_BATCH_ROWS]
                rows = tuple(self._rows.pop(key) for key in keys)
            if not rows:
                return False
            self._flight = SliBatch(self._instance, self._sequence, rows)
        try:
            expected = self._directory.sli(self._flight).expected
        except DocumentError as error:
            _log.error("SLI counts of %d rows dropped: %s", len(self._flight.rows), error)
            self.dropped += len(self._flight.rows)
            self._flight = None
            return True
        if expected > self._flight.sequence:
            self._sequence, self._flight = expected, None
        else:  # a gap: the directory has forgotten a batch of ours, say after its store was restored
            self._flight = msgspec.structs.replace(self._flight, sequence=expected)
        return True

    def _forget(self, now: float) -> None:
        oldest = [key for key in self._rows if key[-1] < now - _KEEP_S]
        if (excess := len(self._rows) - len(oldest) - _CAPACITY_ROWS) > 0:
            oldest = sorted(self._rows, key=lambda key: key[-1])[: len(oldest) + excess]
        for key in oldest:
            del self._rows[key]
        if oldest:
            self.dropped += len(oldest)
            _log.error("SLI counts of %d objective-minutes dropped: the directory is away for too long", len(oldest))
