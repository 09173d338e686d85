import time
from typing import Any

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus, Role
from latencyprobe.sli import SliAnswer, SliBatch, SliRow
from latencyprobe_agent.directory import uplink as module
from latencyprobe_agent.directory.client import DocumentError, FakeDirectory
from latencyprobe_agent.directory.uplink import Uplink
from tests.support.waiting import wait_until

STATUS = AgentStatus("i", "boot", "0.1", 1, {}, "", (), {})
NOW = int(time.time()) // 60 * 60


def row(minute: int = NOW, good: int = 1, **more: Any) -> SliRow:
    return SliRow("shop", "p", "uid", "fast", "hash", Role.SERVER, minute, good=good, **more)


@pytest.fixture
def directory() -> FakeDirectory:
    return FakeDirectory()


@pytest.fixture
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.01)


@pytest.fixture
def uplink(directory: FakeDirectory) -> Uplink:
    return Uplink(directory, "i", status_interval_s=60)


def arrived(directory: FakeDirectory, good: int) -> None:
    """Wait until it has so many good ones."""
    wait_until(lambda: sum(one.good for one in directory.rows) == good, f"{good} good", seen=lambda: directory.rows)


class Forgetful(FakeDirectory):
    """Takes the first batch, but the answer is lost."""

    def sli(self, batch: SliBatch) -> SliAnswer:
        answer = super().sli(batch)
        if len(self.batches) == 1:
            raise DirectoryError("the answer was lost")
        return answer


def test_batches_are_numbered_one_after_the_other(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.start()
    for count in range(1, 4):
        uplink.add([row(good=1)])
        arrived(directory, count)
    uplink.stop(5)
    assert [batch.sequence for batch in directory.batches] == [0, 1, 2]


def test_a_lost_answer_counts_nothing_twice(retry_at_once: None) -> None:
    directory = Forgetful()
    uplink = Uplink(directory, "i", status_interval_s=60)
    uplink.add([row(good=5)])
    uplink.start()
    wait_until(lambda: len(directory.batches) == 2)
    uplink.add([row(good=2)])
    arrived(directory, 7)
    uplink.stop(5)
    assert [batch.sequence for batch in directory.batches] == [0, 0, 1]


def test_after_a_gap_the_expected_number_is_used(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.start()
    for count in (1, 2):
        uplink.add([row(good=1)])
        arrived(directory, count)
    directory.expected = 1  # restored from an older store
    uplink.add([row(good=10)])
    arrived(directory, 12)
    uplink.stop(5)


def test_rows_of_one_minute_wait_as_one(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.add([row(good=1), row(good=2)])
    uplink.add([row(good=4)])
    uplink.start()
    uplink.stop(5)
    assert [[one.good for one in batch.rows] for batch in directory.batches] == [[7]]


def test_a_refused_document_is_dropped_and_counted(directory: FakeDirectory, uplink: Uplink) -> None:
    directory.error = DocumentError("rows[0].minute: in the future")
    uplink.add([row(), row(minute=NOW + 60)])
    uplink.start()
    uplink.stop(5)
    assert (uplink.dropped, len(directory.batches)) == (2, 1)


def test_counts_that_an_operator_of_another_version_cannot_read_wait_for_its_upgrade(
    directory: FakeDirectory, uplink: Uplink, retry_at_once: None
) -> None:
    directory.error = DirectoryError("426: upgrade the older of both")
    uplink.add([row(good=3)])
    uplink.start()
    wait_until(lambda: len(directory.batches) > 2)
    directory.error = None
    arrived(directory, 3)
    uplink.stop(5)
    assert uplink.dropped == 0


def test_a_status_that_is_refused_keeps_no_counts_back(uplink: Uplink, directory: FakeDirectory) -> None:
    directory.status = lambda _: (_ for _ in ()).throw(DocumentError("400"))  # type: ignore[method-assign]
    uplink.report(STATUS)
    uplink.add([row(good=3)])
    uplink.start()
    arrived(directory, 3)
    uplink.stop(5)


def test_counts_older_than_a_day_are_dropped_and_counted(uplink: Uplink) -> None:
    uplink.add([row(minute=NOW - 25 * 3600), row()])
    assert uplink.dropped == 1


def test_a_changed_status_goes_at_once_an_equal_one_waits(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.start()
    uplink.report(STATUS)
    wait_until(lambda: directory.statuses)
    uplink.report(STATUS)
    uplink.add([row()])
    arrived(directory, 1)
    uplink.report(AgentStatus("i", "boot", "0.1", 2, {}, "", (), {}))
    uplink.stop(5)
    assert [status.generation for status in directory.statuses] == [1, 2]


def test_what_is_left_goes_at_the_end(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.start()
    uplink.add([row(minute=NOW + 60 * i) for i in range(600)])
    uplink.stop(10)
    assert len(directory.rows) == 600
