"""What waits for the directory: SLI rows, merged by objective and minute, and the newest status. Pure."""

import logging
from collections.abc import Iterable

from latencyprobe.plan import AgentStatus
from latencyprobe.sli import SliRow, merged

_log = logging.getLogger(__name__)
_BATCH_ROWS = 250  # at most 12 kB each: below the 4 MiB that the directory takes
_CAPACITY_ROWS = 20_000  # 13 objectives for 24 h, 2 kB each
_KEEP_S = 24 * 3600

_Key = tuple[str, str, str, str, str, int]


class PendingRows:
    """What is older than 24 h or above the capacity is dropped, oldest first. `dropped`: rows that nobody got."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rows: dict[_Key, SliRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[SliRow], now_unix_s: float) -> None:
        """Take rows in; equal objective and minute are added up."""
        for row in rows:
            key = (row.namespace, row.probe_uid, row.probe, row.objective, row.hash, row.minute)
            self._rows[key] = merged(self._rows[key], row) if key in self._rows else row
        self._forget(now_unix_s)

    def take(self) -> tuple[SliRow, ...]:
        """Remove a batch, the oldest minutes first."""
        keys = sorted(self._rows, key=lambda key: key[-1])[:_BATCH_ROWS]
        return tuple(self._rows.pop(key) for key in keys)

    def _forget(self, now_unix_s: float) -> None:
        oldest = [key for key in self._rows if key[-1] < now_unix_s - _KEEP_S]
        if (excess := len(self._rows) - len(oldest) - _CAPACITY_ROWS) > 0:
            oldest = sorted(self._rows, key=lambda key: key[-1])[: len(oldest) + excess]
        for key in oldest:
            del self._rows[key]
        if oldest:
            self.dropped += len(oldest)
            _log.error("SLI counts of %d objective-minutes dropped: the directory is away for too long", len(oldest))


class PendingStatus:
    """The newest status: due at once when something other than counts has changed, else after `interval_s`."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._newest: AgentStatus | None = None
        self._sent: AgentStatus | None = None
        self._sent_s = 0.0

    def replace(self, status: AgentStatus) -> None:
        """Take a newer one."""
        self._newest = status

    def due(self, now_s: float) -> AgentStatus | None:
        """Return what is to be sent now."""
        newest, sent = self._newest, self._sent
        if newest is None:
            return None
        changed = sent is None or _urgent(newest) != _urgent(sent)
        return newest if changed or now_s - self._sent_s >= self._interval_s else None

    def sent(self, status: AgentStatus, now_s: float) -> None:
        """Note that one has arrived."""
        self._sent, self._sent_s = status, now_s


def _urgent(status: AgentStatus) -> tuple[object, ...]:
    """Return what cannot wait for the interval: counts can."""
    refused = tuple((target.id, target.refused) for target in status.targets if target.refused)
    return status.generation, status.variants, status.error, tuple(status.failing), refused
