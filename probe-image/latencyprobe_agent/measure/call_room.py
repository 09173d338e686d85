"""Where halves wait to be joined by thread: a row of what the join looks at beside each record. No objects, bounded."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import WHOLE, Halves, halves
from latencyprobe_agent.measure.nesting import Intervals
from latencyprobe_agent.vocabulary.records import EXCHANGE, Role

GROWN = 4_096  # halves more than there were, then room is made

# A half that waits. `thread`: who served, or called; `begin_ns`, `end_ns`: of a server's `process`, of a client's whole
# duration; `sampled`: as in Halves; `inside`: a client half in a server half that waits too; `gone`: it waits no more.
_ROW = np.dtype(
    [
        *(("thread", "u8"), ("join_key", "u8"), ("begin_ns", "i8"), ("end_ns", "i8"), ("tgid", "u4")),
        *(("excluded", "u1"), ("sampled", "u1"), ("server", "?"), ("inside", "?"), ("gone", "?")),
    ],
    align=True,
)
_WHOLE_ROW = np.dtype(f"V{_ROW.itemsize}")


class CallRoom:
    """`limit`: of halves that wait, which take 256 bytes each. `no_room`: client halves that had to go for it."""

    def __init__(self, limit: int) -> None:
        self.no_room = 0
        self._limit = limit
        self._rows = np.zeros(limit + GROWN, _ROW)
        self._records = np.zeros(limit + GROWN, WHOLE)
        self._count = 0
        self._full = GROWN

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> NDArray[np.void]:
        """All of them as `_ROW`, in the order in which they came; to be changed in place."""
        return self._rows[: self._count]

    def halves(self, at: NDArray[np.intp]) -> Halves:
        """Return some of them."""
        some = halves(self._records.take(at).view(EXCHANGE))
        some.sampled[:] = self._rows["sampled"][at]
        return some

    def intervals(self, at: NDArray[np.intp]) -> Intervals:
        """Return when some of them were, by thread."""
        return Intervals(*(self._rows[name].take(at) for name in ("thread", "begin_ns", "end_ns")))

    def append(self, some: Halves, at: NDArray[np.intp]) -> NDArray[np.void]:
        """Let the halves `at` (intp[m], at most GROWN) wait; return their rows, `_ROW`[m], to be changed in place."""
        if self._count + len(at) > self._full:
            self.compact()
        new = slice(self._count, self._count + len(at))
        self._count = new.stop
        self._records[new] = some.rec.view(WHOLE).take(at)
        record, rows = self._records[new].view(EXCHANGE), self._rows[new]
        server = record["role"] == Role.SERVER
        read_ns, sent_ns = record["read_last_ns"].astype(np.int64), record["send_start_ns"].astype(np.int64)
        rows["thread"] = record["reader_tgid"].astype(np.uint64) << np.uint64(32) | record["reader_tid"]
        rows["join_key"], rows["tgid"], rows["server"] = some.join_key[at], record["reader_tgid"], server
        rows["begin_ns"] = np.where(server, read_ns, sent_ns)
        rows["end_ns"] = np.maximum(np.where(server, sent_ns, read_ns), rows["begin_ns"])
        rows["sampled"], rows["excluded"] = some.sampled[at], record["excluded"]
        rows["inside"], rows["gone"] = False, False
        return rows

    def compact(self) -> None:
        """Let go of what waits no more, and of the oldest beyond the limit."""
        left = np.flatnonzero(~self.rows["gone"])
        too_many = max(0, len(left) - self._limit + GROWN)
        self.no_room += int(np.count_nonzero(~self._rows["server"][left[:too_many]]))
        stay = left[too_many:]
        self._rows.view(_WHOLE_ROW)[: len(stay)] = self._rows.view(_WHOLE_ROW).take(stay)  # whole, not field by field
        self._records[: len(stay)] = self._records.take(stay)
        self._count = len(stay)
        self._full = min(len(stay) + GROWN, self._limit + GROWN)
