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
        limit, first = len(self.rows), 0
        while first < len(halves):
            slot = self.kept % limit
            last = min(len(halves), first + limit - slot)
            _fill(self.rows[slot : slot + last - first], halves, slice(first, last), self.kept + 1)
            self.kept += last - first
            first = last


def recent(halves: Halves) -> NDArray[np.void]:
    """Return these halves as RECENT_HALF[n], in no place of the recent ones."""
    rows = np.zeros(len(halves), RECENT_HALF)
    _fill(rows, halves, slice(0, len(halves)), 1)
    return rows


def _fill(rows: NDArray[np.void], halves: Halves, some: slice, at: int) -> None:
    """Write some halves to RECENT_HALF rows, numbered from `at`."""
    record = halves.rec[some]
    client = record["role"] == Role.CLIENT
    rows["at"] = np.arange(at, at + len(rows))
    seq = np.where(client, record["request_seq"], record["response_seq"])
    rows["seq"] = seq
    end_seq = seq + np.where(client, record["request_bytes"], record["response_bytes"]).astype("u4")
    until = np.where(client, record["request_until"], record["response_until"])  # of a stream that was not cut short
    rows["end_seq"] = np.where((record["stream_id"] != 0) & (until != 0), until, end_seq)
    rows["tid"] = np.where(client, record["writer_tid"], record["reader_tid"])
    rows["of_stream"] = record["stream_id"] != 0
    rows["fresh"] = record["flags"] & np.uint32(ExchangeFlags.FRESH) != 0
    for name in (
        "sock_cookie",
        "send_start_ns",
        "send_end_ns",
        "read_last_ns",
        "target_set",
        "local_port",
        "peer_port",
    ):
        rows[name] = record[name]
    for name in ("role", "excluded", "outcome"):
        rows[name] = record[name]
    for name in ("join_key", "start_ns", "end_ns", "duration_ns", "adjusted_count"):
        rows[name] = getattr(halves, name)[some]
