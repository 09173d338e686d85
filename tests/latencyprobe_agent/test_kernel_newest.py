"""The ring that keeps the newest: every record is delivered or counted, whatever the writer does meanwhile."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from latencyprobe_agent.kernel import newest
from latencyprobe_agent.kernel.newest import Newest
from latencyprobe_agent.vocabulary.records import NEWEST_HEAD, NEWEST_RECORD

SLOT = np.dtype([("lock", "u1", 8), ("value", NEWEST_RECORD)])
HEAD = np.dtype([("lock", "u1", 8), ("value", NEWEST_HEAD)])
CPUS, SLOTS = 2, 4


class Kernel:
    """Both arrays, and what the programs do with them. `before_read` runs before a range of slots is read."""

    max_entries, value_size = CPUS * SLOTS + 1, HEAD.itemsize

    def __init__(self) -> None:
        self.heads = np.zeros(CPUS, HEAD)
        self.slots = np.zeros(CPUS * SLOTS, SLOT)
        self.before_read: Callable[[], None] = lambda: None

    def update(self, key: bytes, value: bytes) -> None:
        self.heads[int(np.frombuffer(key, np.uint32)[0])] = np.frombuffer(value, HEAD)[0]

    def lookup(self, key: bytes, into: memoryview) -> bool:
        into[:] = self.heads[int(np.frombuffer(key, np.uint32)[0])].tobytes()
        return True

    def take_number(self, cpu: int = 0) -> int:
        self.heads[cpu]["value"]["written"] += 1
        return int(self.heads[cpu]["value"]["written"])

    def write(self, number: int, cpu: int = 0) -> None:
        slot = self.slots[cpu * SLOTS + (number - 1) % SLOTS]["value"]
        slot["number"], slot["record"]["task_no"] = number, 100 * cpu + number

    def emit(self, count: int = 1, cpu: int = 0) -> None:
        for _ in range(count):
            self.write(self.take_number(cpu), cpu)


class Slots:
    """The slots' map: `Map` has one value size."""

    max_entries, value_size = CPUS * SLOTS + 1, SLOT.itemsize

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read_range(self, first: int, into: memoryview) -> int:
        self._kernel.before_read()
        count = into.nbytes // SLOT.itemsize
        into[:] = self._kernel.slots[first : first + count].tobytes()
        return count


@pytest.fixture
def kernel(monkeypatch) -> Kernel:
    monkeypatch.setattr(newest, "possible_cpus", lambda: CPUS)
    return Kernel()


def ring(kernel: Kernel) -> Newest:
    return Newest(Slots(kernel), kernel)  # type: ignore[arg-type]


def drained(reader: Newest) -> list[int]:
    return [int(number) for number in reader.drain()["task_no"]]


def test_records_come_once_in_the_order_of_their_cpu(kernel):
    reader = ring(kernel)
    kernel.emit(3)
    kernel.emit(2, cpu=1)
    assert (5, [1, 2, 3, 101, 102], 0) == (reader.waiting(), drained(reader), reader.lost)
    assert (0, []) == (reader.waiting(), drained(reader))
    kernel.emit(3)
    assert [4, 5, 6] == drained(reader), "around the end"


def test_the_newest_stay_and_the_others_are_counted(kernel):
    reader = ring(kernel)
    kernel.emit(10)
    assert (4, [7, 8, 9, 10], 6) == (reader.waiting(), drained(reader), reader.lost)


def test_a_record_that_is_overwritten_while_it_is_read_is_counted_and_its_successor_comes_next(kernel):
    reader = ring(kernel)
    kernel.emit(4)
    kernel.before_read = lambda: kernel.emit(2)
    assert [3, 4] == drained(reader)
    kernel.before_read = lambda: None
    assert ([5, 6], 2) == (drained(reader), reader.lost)


def test_a_record_that_is_not_written_yet_holds_those_after_it(kernel):
    """A softirq came between a program's taking its number and its writing."""
    reader = ring(kernel)
    kernel.emit()
    interrupted = kernel.take_number()
    kernel.emit()
    assert [1] == drained(reader)
    kernel.write(interrupted)
    assert ([2, 3], 0) == (drained(reader), reader.lost)


def test_a_limit_leaves_the_rest_for_later(kernel):
    reader = ring(kernel)
    kernel.emit(4)
    assert [1, 2] == [int(n) for n in reader.drain(limit=2)["task_no"]]
    assert [3, 4] == drained(reader)


def test_cpus_with_records_use_what_the_others_leave_of_a_limit(kernel):
    reader = ring(kernel)
    kernel.emit(4)
    kernel.emit(1, cpu=1)
    assert [1, 2, 3, 101] == [int(n) for n in reader.drain(limit=4)["task_no"]]
    kernel.emit(3)
    assert [4, 5] == [int(n) for n in reader.drain(limit=2)["task_no"]], "of an idle one nothing stays reserved"


def test_nobody_waits_for_what_a_limit_left(kernel, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(newest, "time", SimpleNamespace(sleep=waits.append))
    reader = ring(kernel)
    kernel.emit(3)
    reader.drain(limit=2)
    reader.wait(1.0)
    assert [] == waits
    reader.drain(limit=2)
    reader.wait(1.0)
    assert [1.0] == waits


def test_what_is_kept_can_be_copied_again_and_again(kernel):
    reader = ring(kernel)
    kernel.emit(3)
    for _ in range(2):
        values, overwritten, missing = reader.kept(0)
        assert ([1, 2, 3], 0, 0) == (values["number"].tolist(), overwritten, missing)
    kernel.emit(3)
    values, overwritten, missing = reader.kept(0)
    assert ([3, 4, 5, 6], 2, 0) == (values["number"].tolist(), overwritten, missing)
    assert ([], 0, 0) == (reader.kept(1)[0].tolist(), *reader.kept(1)[1:])


def test_what_is_overwritten_or_written_while_it_is_copied_is_counted(kernel):
    reader = ring(kernel)
    kernel.emit(4)
    kernel.take_number()  # of 5, which takes the place of 1
    values, overwritten, missing = reader.kept(0)
    assert ([2, 3, 4], 1, 1) == (values["number"].tolist(), overwritten, missing)
    kernel.write(5)
    kernel.before_read = lambda: kernel.emit(1)  # in each of the two parts
    values, overwritten, missing = reader.kept(0)
    assert ([3, 4, 5], 2, 0) == (values["number"].tolist(), overwritten, missing)
