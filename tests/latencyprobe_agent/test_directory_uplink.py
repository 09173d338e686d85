"""directory/uplink.py: rows go to the directory once, when it wants them, and are kept while it is away."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.sli import SliAnswer, SliBatch
from latencyprobe_agent.directory import uplink as module
from latencyprobe_agent.directory.client import DocumentError, FakeDirectory
from latencyprobe_agent.directory.uplink import Uplink
from latencyprobe_agent.directory.waiting import WaitingRows
from tests.latencyprobe_agent.sli_rows import NOW, row
from tests.support.waiting import wait_until


@pytest.fixture
def directory() -> FakeDirectory:
    return FakeDirectory()


@pytest.fixture
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_RETRY_S", 0.01)


@pytest.fixture
def waiting(tmp_path: Path) -> WaitingRows:
    return WaitingRows(tmp_path)


@pytest.fixture
def uplink(directory: FakeDirectory, waiting: WaitingRows) -> Uplink:
    return Uplink(directory, waiting)


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
    uplink.stop(60)
    assert [batch.sequence for batch in directory.batches] == [0, 1, 2]


def test_a_lost_answer_counts_nothing_twice(retry_at_once: None, waiting: WaitingRows) -> None:
    directory = Forgetful()
    uplink = Uplink(directory, waiting)
    uplink.add([row(good=5)])
    uplink.start()
    wait_until(lambda: len(directory.batches) == 2)
    uplink.add([row(good=2)])
    arrived(directory, 7)
    uplink.stop(60)
    assert [batch.sequence for batch in directory.batches] == [0, 0, 1]


def test_after_a_gap_the_expected_number_is_used(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.start()
    for count in (1, 2):
        uplink.add([row(good=1)])
        arrived(directory, count)
    directory.expected = 1  # restored from an older store
    uplink.add([row(good=10)])
    arrived(directory, 12)
    uplink.stop(60)


def test_rows_of_one_minute_wait_as_one(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.add([row(good=1), row(good=2)])
    uplink.add([row(good=4)])
    uplink.start()
    uplink.stop(60)
    assert [[one.good for one in batch.rows] for batch in directory.batches] == [[7]]


def test_a_refused_document_is_dropped_and_counted(
    directory: FakeDirectory, uplink: Uplink, waiting: WaitingRows
) -> None:
    directory.error = DocumentError("rows[0].minute: in the future")
    uplink.add([row(), row(minute=NOW + 60)])
    uplink.start()
    uplink.stop(60)
    assert ({"refused": 2}, 1) == (waiting.dropped, len(directory.batches))


def test_counts_that_an_operator_of_another_version_cannot_read_wait_for_its_upgrade(
    directory: FakeDirectory, uplink: Uplink, waiting: WaitingRows, retry_at_once: None
) -> None:
    directory.error = DirectoryError("426: upgrade the older of both")
    uplink.add([row(good=3)])
    uplink.start()
    wait_until(lambda: len(directory.batches) > 2)
    directory.error = None
    arrived(directory, 3)
    uplink.stop(60)
    assert not waiting.dropped


def test_what_is_left_goes_at_the_end(directory: FakeDirectory, uplink: Uplink) -> None:
    uplink.start()
    uplink.add([row(minute=NOW + 60 * i) for i in range(600)])
    uplink.stop(10)
    assert len(directory.rows) == 600


def test_what_an_earlier_process_left_goes_without_new_rows(directory: FakeDirectory, tmp_path: Path) -> None:
    before = WaitingRows(tmp_path)
    before.add([row(good=3)])
    before.close()
    uplink = Uplink(directory, WaitingRows(tmp_path))
    uplink.start()
    arrived(directory, 3)
    uplink.stop(60)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The uplink's time, which stands, and the longest pauses that it may make of what it is told."""
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "random", SimpleNamespace(uniform=max))
    return now


@pytest.mark.parametrize(("wanted_s", "at_most_s"), [(0.0, 0.0), (60.0, 60.0), (1e9, 300.0)])
def test_the_next_upload_waits_for_as_long_as_the_directory_says(
    directory: FakeDirectory, uplink: Uplink, now: list[float], wanted_s: float, at_most_s: float
) -> None:
    directory.next_upload_s = wanted_s
    uplink.start()
    uplink.add(row(minute=NOW - 60 * i) for i in range(600))
    arrived(directory, 600)  # one upload, three batches
    wait_until(lambda: uplink._due_s)
    assert pytest.approx(1000 + at_most_s) == uplink._due_s
    uplink.add([row(minute=NOW - 60, good=5)])
    if wanted_s:
        wait_until(lambda: len(uplink._waiting) == 1)
        assert 3 == len(directory.batches)
        now[0] += at_most_s
        with uplink._lock:
            uplink._lock.notify_all()
    arrived(directory, 605)
    uplink.stop(60)


def test_where_uploads_are_far_apart_a_minute_goes_when_it_is_over_and_in_one_row(
    directory: FakeDirectory, tmp_path: Path, now: list[float]
) -> None:
    unix_s = [NOW + 5.0]
    waiting = WaitingRows(tmp_path, lambda: unix_s[0])
    uplink = Uplink(directory, waiting)
    directory.next_upload_s = 20.0

    def pass_20_s() -> None:
        wait_until(lambda: uplink._due_s == pytest.approx(now[0] + 20))
        with uplink._lock:
            now[0] += 20
            unix_s[0] += 20
            uplink._lock.notify_all()

    uplink.start()
    uplink.add([row(minute=NOW - 60, good=1)])
    arrived(directory, 1)
    for _ in range(2):
        uplink.add([row(good=10), row(minute=NOW - 60, good=1)])
        pass_20_s()
    arrived(directory, 3)
    pass_20_s()
    arrived(directory, 23)
    assert [NOW] == [one.minute for one in directory.batches[-1].rows]
    directory.next_upload_s = 1000.0
    uplink.add([row(minute=NOW + 60, good=100)])
    uplink.stop(60)
    assert 123 == sum(one.good for one in directory.rows), "at the end nothing is left for later"


@pytest.mark.parametrize(("error", "pause_s"), [(DirectoryError("503", retry_after_s=40.0), 44.0), (None, 2.2)])
def test_a_directory_that_is_busy_is_left_alone_for_as_long_as_it_says(
    directory: FakeDirectory, uplink: Uplink, now: list[float], error: DirectoryError | None, pause_s: float
) -> None:
    directory.error = error or DirectoryError("unreachable")
    uplink.start()
    uplink.add([row()])
    wait_until(lambda: uplink._due_s)
    assert pytest.approx(1000 + pause_s) == uplink._due_s
    directory.error = None
    uplink.stop(60)
    assert 1 == len(directory.rows), "at the end nothing is left for later"


def test_rows_that_come_while_the_directory_hangs_are_on_disk(tmp_path: Path, waiting: WaitingRows) -> None:
    asked, answer = threading.Event(), threading.Event()

    class Hanging(FakeDirectory):
        def sli(self, batch: SliBatch) -> SliAnswer:
            asked.set()
            answer.wait(60)
            return super().sli(batch)

    directory = Hanging()
    uplink = Uplink(directory, waiting)
    uplink.start()
    uplink.add([row(good=1)])
    assert asked.wait(60)
    uplink.add([row(good=2)])
    wait_until(lambda: waiting._disk and waiting._disk.waiting == 2)
    answer.set()
    arrived(directory, 3)
    uplink.stop(60)


def test_a_disk_that_hangs_fills_no_memory_and_delays_nobody(
    directory: FakeDirectory, waiting: WaitingRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, works = threading.Event(), threading.Event()

    def hanging(rows: object) -> None:
        hangs.set()
        works.wait(60)

    monkeypatch.setattr(waiting, "add", hanging)
    monkeypatch.setattr(module, "CAPACITY_ROWS", 10)
    uplink = Uplink(directory, waiting)
    uplink.start()
    uplink.add([row()])
    assert hangs.wait(60)
    uplink.add([row(good=7)])
    uplink.add(row(objective=f"o{i}", namespace="evil") for i in range(24))
    assert ({"no_room": 15}, 10) == (waiting.dropped, len(uplink._taken))
    assert 7 in {one.good for one in uplink._taken}, "one namespace pushes out no row of another"
    works.set()
    uplink.stop(60)
