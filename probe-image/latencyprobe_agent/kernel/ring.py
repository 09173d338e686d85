"""Read a BPF ring buffer of fixed-size records with numpy: no callback and no Python object per record.

The kernel writes records and the producer position, `Reader` reads them and writes the consumer position. What
`drain()` returns is a copy that the caller owns; the ring's memory is the kernel's again when it returns.
Layout (kernel/bpf/ringbuf.c): consumer page, producer page, data; each record follows an 8-byte header, both 8-aligned.
"""

import mmap
import select
from typing import Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import AbiMismatch

_BUSY, _DISCARDED, _LENGTH = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32((1 << 30) - 1)
_HEADER = 8
_PAGE = mmap.PAGESIZE


class Reader:
    """Drains the memory of a ring: `consumer` and `producer` are u64[1], `data` is u1[size], size a power of two."""

    def __init__(
        self,
        consumer: NDArray[np.uint64],
        producer: NDArray[np.uint64],
        data: NDArray[np.uint8],
        record: np.dtype[np.void],
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._data = data
        self._headers = data.view(np.uint32)
        self._record = record
        self._whole = np.dtype(f"V{record.itemsize}")  # moves records as they are, not field by field
        assert record.itemsize % 8 == 0

    def waiting(self) -> int:
        """Return how many records are in the ring; some may still be written."""
        return (int(self._producer[0]) - int(self._consumer[0])) // (_HEADER + self._record.itemsize)

    def drain(self, limit: int = 16_384) -> NDArray[np.void]:
        """Return the next records, at most `limit`, up to the first that a program still writes. A copy.

        A header is read after the position that covers it, a record after its header, and the consumer position is
        written last. Every step is a call of its own, between which CPUs with weaker order than x86 have long caught
        up; each access is one aligned load or store. Raises AbiMismatch for a record of another size.
        """
        size, slot = self._data.size, _HEADER + self._record.itemsize
        start = int(self._consumer[0])
        at = start % size
        headers = self._heads(at, min(limit, self.waiting()))
        ordinary = (headers == self._record.itemsize).all()
        if not ordinary:
            headers = self._complete(headers)
        # Only with this line done are the records ours: the next one lets the kernel overwrite.
        records = self._copied(at, len(headers))
        self._consumer[0] = start + len(headers) * slot
        return records if ordinary else records.compress((headers & _DISCARDED) == 0)

    def _complete(self, headers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the headers before the first record that a program still writes."""
        busy = (headers & _BUSY).astype(np.bool_)
        if busy.any():
            headers = headers[: busy.argmax()]
        wrong = (headers & _LENGTH) != self._record.itemsize
        if wrong.any():
            found = int(headers[wrong][0] & _LENGTH)
            raise AbiMismatch(f"ring holds a record of {found} bytes, expected {self._record.itemsize}: rebuild both")
        return headers

    def _copied(self, at: int, count: int) -> NDArray[np.void]:
        """Return `count` records whose slots begin at byte `at`, without their headers."""
        size, slot = self._data.size, _HEADER + self._record.itemsize
        records = np.empty(count, self._whole)
        before_end = min(count, (size - at) // slot)
        records[:before_end] = self._slots(at, before_end)
        if before_end < count:
            split = at + before_end * slot + _HEADER  # the one that ends in, or begins at, the memory's beginning
            content = self._data.take(np.arange(split, split + self._record.itemsize), mode="wrap")
            records[before_end] = content.view(self._whole)[0]
            records[before_end + 1 :] = self._slots((at + (before_end + 1) * slot) % size, count - before_end - 1)
        return records.view(self._record)

    def _slots(self, at: int, count: int) -> NDArray[np.void]:
        """The records of `count` slots from byte `at`, none of which reaches the memory's end."""
        slot = _HEADER + self._record.itemsize
        if not count:
            return np.empty(0, self._whole)
        return np.ndarray((count,), self._whole, self._data, at + _HEADER, (slot,))

    def _heads(self, at: int, count: int) -> NDArray[np.uint32]:
        """Header words of `count` records from byte `at`; a header never straddles the end, as all is 8-aligned."""
        step = _HEADER + self._record.itemsize
        before_end = min(count, -(-(self._data.size - at) // step))
        wrapped_at = at + before_end * step - self._data.size
        heads = self._headers[at // 4 :: step // 4][:before_end]
        if before_end == count:
            return heads.copy()
        return np.concatenate([heads, self._headers[wrapped_at // 4 :: step // 4][: count - before_end]])


class Ring(Reader):
    """The mapped ring of a loaded object. `size`: its max_entries in bytes.

    The data pages are mapped once, although the kernel offers them twice in a row: mapped pages count as resident
    memory (measured: 16.8 MB for a ring of 16 MiB), and records that wrap cost one more copy per drain.
    """

    @classmethod
    def open(cls, fd: int, size: int, record: np.dtype[np.void]) -> Self:
        """Map the ring map `fd`, which must stay open."""
        position = mmap.mmap(fd, _PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        memory = mmap.mmap(fd, _PAGE + size, mmap.MAP_SHARED, mmap.PROT_READ, offset=_PAGE)
        ring = cls(
            np.frombuffer(position, np.uint64, 1),
            np.frombuffer(memory, np.uint64, 1),
            np.frombuffer(memory, np.uint8, size, offset=_PAGE),
            record,
        )
        # Edge-triggered: level-triggered epoll would end every wait that finds a single record.
        ring._epoll = select.epoll()
        ring._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        return ring

    _epoll: select.epoll
    lost = 0  # a record that this ring refuses is counted by the program

    def wait(self, timeout_s: float) -> None:
        """Wait until the kernel wakes readers of this ring, or for `timeout_s`."""
        self._epoll.poll(timeout_s)

    def close(self) -> None:
        """Give up the mapping; `drain()` must not be called again."""
        self._epoll.close()
        del self._consumer, self._producer, self._data, self._headers
