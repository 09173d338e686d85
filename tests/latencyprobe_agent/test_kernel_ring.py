"""Draining a ring's memory: in order, once, stopping at what is still written, across the end of the buffer."""

import mmap
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.errors import AbiMismatch
from latencyprobe_agent.kernel.ring import Reader

RECORD = np.dtype([("number", "u8"), ("_fill", "u1", 40)])
SLOT = 8 + RECORD.itemsize
BUSY, DISCARDED = 1 << 31, 1 << 30


class FakeRing:
    """Memory as kernel/bpf/ringbuf.c lays it out; `write()` does what reserve and submit do."""

    def __init__(self, size: int = 4096, position: int = 0) -> None:
        self.consumer, self.producer = np.full(1, position, np.uint64), np.full(1, position, np.uint64)
        self.data = np.zeros(size, np.uint8)
        self.reader = Reader(self.consumer, self.producer, self.data, RECORD)

    def write(self, number: int, flags: int = 0, length: int = RECORD.itemsize) -> None:
        at = int(self.producer[0])
        assert at + SLOT - int(self.consumer[0]) <= self.data.size, "the kernel would refuse"
        record = np.zeros((), RECORD)
        record["number"], record["_fill"] = number, number & 0xFF
        content = np.uint32(length | flags).tobytes() + bytes(4) + record.tobytes()
        self.data[np.arange(at, at + SLOT) % self.data.size] = np.frombuffer(content, np.uint8)
        self.producer[0] += SLOT


def numbers(records) -> list[int]:
    assert (records["_fill"] == (records["number"] & 0xFF)[:, None]).all()
    return records["number"].tolist()


@given(st.integers(0, 2**40), st.lists(st.tuples(st.integers(0, 70), st.integers(1, 100)), max_size=12))
def test_every_record_comes_once_and_in_order_wherever_the_buffer_ends(start, steps):
    ring, written, read = FakeRing(position=start * 8), 0, []

    for count, limit in steps:
        for _ in range(min(count, ring.data.size // SLOT - ring.reader.waiting())):
            ring.write(written)
            written += 1
        read += numbers(ring.reader.drain(limit))
    read += numbers(ring.reader.drain())

    assert list(range(written)) == read
    assert 0 == ring.reader.waiting()


def test_a_record_still_being_written_ends_the_batch_and_comes_later():
    ring = FakeRing()
    ring.write(1)
    ring.write(2, BUSY)
    ring.write(3)

    first = numbers(ring.reader.drain())
    ring.data.view(np.uint32)[SLOT // 4] ^= np.uint32(BUSY)

    assert ([1], [2, 3]) == (first, numbers(ring.reader.drain()))


def test_discarded_records_are_skipped():
    ring = FakeRing()
    for number, flags in ((1, 0), (2, DISCARDED), (3, 0)):
        ring.write(number, flags)

    assert [1, 3] == numbers(ring.reader.drain())
    assert 0 == ring.reader.waiting()


def test_a_batch_stays_as_it_is_when_the_kernel_writes_on():
    ring = FakeRing()
    ring.write(1)
    batch = ring.reader.drain()

    for number in range(2, 2 + ring.data.size // SLOT):
        ring.write(number)

    assert [1] == numbers(batch)


def test_a_record_of_another_size_is_an_abi_mismatch_and_is_not_consumed():
    ring = FakeRing()
    ring.write(1, length=40)

    with pytest.raises(AbiMismatch, match="40 bytes, expected 48"):
        ring.reader.drain()

    assert 1 == ring.reader.waiting()


def test_an_empty_ring_gives_an_empty_batch():
    assert (0, RECORD) == (len(FakeRing().reader.drain()), FakeRing().reader.drain().dtype)


def test_the_reader_works_on_mapped_read_only_memory(tmp_path):
    fd = os.open(tmp_path / "ring", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 4096)
    memory = np.frombuffer(mmap.mmap(fd, 4096, prot=mmap.PROT_READ), np.uint8)
    os.close(fd)

    assert 0 == len(Reader(np.zeros(1, np.uint64), np.zeros(1, np.uint64), memory, RECORD).drain())
