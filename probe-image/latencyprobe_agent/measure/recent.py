"""The halves that ended last, in which the joins of all signals of evidence look for what their records explain."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.signals.join_keys import RECENT_HALF
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Role


class RecentHalves:
    """The latest halves: `rows`, RECENT_HALF[limit]; `kept`: how many there have been."""

    def __init__(self, limit: int = 16_384) -> None:
        self.rows = np.zeros(limit, RECENT_HALF)
        self.kept = 0

    def keep(self, halves: Halves) -> None:
        """Take in halves that have ended, in the place of the oldest ones."""
        limit = len(self.rows)
        newest = halves if len(halves) <= limit else halves.take(np.arange(len(halves) - limit, len(halves)))
        slots = (self.kept + np.arange(len(newest))) % limit
        self.rows[slots] = _rows(newest, self.kept + 1)
        self.kept += len(newest)


def _rows(halves: Halves, at: int) -> NDArray[np.void]:
    """Return RECENT_HALF rows, numbered from `at`."""
    record, client = halves.rec, halves.rec["role"] == Role.CLIENT
    rows = np.zeros(len(halves), RECENT_HALF)
    rows["at"] = at + np.arange(len(halves))
    rows["seq"] = np.where(client, record["request_seq"], record["response_seq"])
    rows["end_seq"] = rows["seq"] + np.where(client, record["request_bytes"], record["response_bytes"]).astype("u4")
    rows["tid"] = np.where(client, record["writer_tid"], record["reader_tid"])
    rows["fresh"] = record["flags"] & ExchangeFlags.FRESH != 0
    for name in ("sock_cookie", "send_start_ns", "send_end_ns", "target_set", "local_port", "peer_port"):
        rows[name] = record[name]
    for name in ("role", "excluded", "outcome"):
        rows[name] = record[name]
    for name in ("join_key", "start_ns", "end_ns", "duration_ns"):
        rows[name] = getattr(halves, name)
    return rows
