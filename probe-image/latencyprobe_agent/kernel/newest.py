"""Read a ring that keeps the newest records: bpf/newest.bpf.h writes, per CPU.

Records are numbered per CPU, so each one that was overwritten before it was read is counted, exactly. What `drain()`
returns is a copy that the caller owns. CPUs follow each other in a batch; within one the order is that of emission.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.maps import Map, possible_cpus
from latencyprobe_agent.vocabulary.records import NEWEST_HEAD, NEWEST_RECORD

_LOCK = 8  # bytes: bpf_spin_lock and padding, before the value


class Kept(NamedTuple):
    """What a CPU's part of the ring holds: `values`, oldest first; how many were `overwritten` before the first of
    them, since the ring was opened; how many that are newer are `missing`: a program was just writing them."""

    values: NDArray[np.void]
    overwritten: int
    missing: int


class Newest:
    """The array `records` divided among the CPUs; it keeps nothing before this opens it. `lost`: overwritten unread.

    `value`: its `number` and `record`.
    """

    def __init__(self, records: Map, heads: Map, value: np.dtype[np.void] = NEWEST_RECORD) -> None:
        self._records, self._heads = records, heads
        cpus = possible_cpus()
        self._slots = records.max_entries // cpus
        self._next = [1] * cpus
        self._left = False
        self.lost = 0
        self._slot = np.dtype([("lock", "u1", _LOCK), ("value", value)])
        assert self._slot.itemsize == records.value_size
        head = np.zeros((), [("lock", "u1", _LOCK), ("value", NEWEST_HEAD)])
        head["value"]["slots"] = self._slots
        for cpu in range(cpus):
            heads.update(np.uint32(cpu).tobytes(), head.tobytes())

    def waiting(self) -> int:
        """Return how many records can be read."""
        return sum(self._waiting().values())

    def drain(self, limit: int = 16_384) -> NDArray[np.void]:
        """Return the next records, of the type that the ring was opened for, at most `limit`. A copy."""
        waiting = self._waiting()
        shares = _shares(waiting, limit)
        self._left = shares != waiting
        parts = [self._drain_cpu(cpu, share) for cpu, share in shares.items()]
        return np.concatenate([np.zeros(0, self._slot["value"]["record"]), *parts])

    def wait(self, timeout_s: float) -> None:
        """Wait out the time, unless the limit of the last `drain()` left records: the kernel wakes nobody for this
        ring, as what is not read in time may be overwritten."""
        if not self._left:
            time.sleep(timeout_s)

    def kept(self, cpu: int) -> Kept:
        """Return what is there of a CPU, as `value`. A copy; it stays there, and `drain()` does not notice."""
        written = self._written(cpu)
        oldest = max(written - self._slots + 1, 1)
        values = self._read(cpu, (oldest - 1) % self._slots, written - oldest + 1)
        there = values["number"].astype(np.int64) == oldest + np.arange(len(values))
        first = int(there.argmax()) if there.any() else len(values)
        return Kept(values[there], oldest - 1 + first, int((~there[first:]).sum()))

    def close(self) -> None:
        """Nothing is held: the maps are the object's."""

    def _waiting(self) -> dict[int, int]:
        """CPU → how many records can be read, of those that have any."""
        written = (self._written(cpu) for cpu in range(len(self._next)))
        numbers = enumerate(zip(written, self._next, strict=True))
        return {cpu: min(n - following + 1, self._slots) for cpu, (n, following) in numbers if n >= following}

    def _drain_cpu(self, cpu: int, limit: int) -> NDArray[np.void]:
        following, written = self._next[cpu], self._written(cpu)
        oldest = max(following, written - self._slots + 1)
        self.lost += oldest - following
        count = min(written - oldest + 1, limit)
        values = self._read(cpu, (oldest - 1) % self._slots, count)
        numbers = values["number"].astype(np.int64)
        expected = oldest + np.arange(count)
        unfinished = numbers < expected  # a program has its number, but has not written the record yet
        if unfinished.any():
            count = int(unfinished.argmax())
        kept = numbers[:count] == expected[:count]  # others were overwritten while we read
        self.lost += int(count - kept.sum())
        self._next[cpu] = oldest + count
        records: NDArray[np.void] = values["record"][:count][kept]
        return records

    def _read(self, cpu: int, at: int, count: int) -> NDArray[np.void]:
        values = np.zeros(count, self._slot)
        before_end = min(count, self._slots - at)
        for start, end, index in ((0, before_end, at), (before_end, count, 0)):
            if end > start:
                got = self._records.read_range(cpu * self._slots + index, values[start:end].view(np.uint8).data)
                assert got == end - start
        read: NDArray[np.void] = values["value"]
        return read

    def _written(self, cpu: int) -> int:
        value = np.zeros(self._heads.value_size, np.uint8)
        self._heads.lookup(np.uint32(cpu).tobytes(), value.data)
        return int(value[_LOCK:].view(NEWEST_HEAD)[0]["written"])


def _shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide `limit` among the CPUs: who has more gets what the others leave. In the order of `waiting`."""
    shares = dict(waiting)
    for others, cpu in zip(range(len(waiting), 0, -1), sorted(waiting, key=waiting.__getitem__), strict=True):
        shares[cpu] = min(waiting[cpu], limit // others)
        limit -= shares[cpu]
    return shares
