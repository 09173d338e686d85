import time
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.plan import AgentStatus, Role
from latencyprobe.sli import SliRow
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.uplink import Uplink
from tests.support.waiting import wait_until

STATUS = AgentStatus("i", "boot", "0.1", 1, {}, "", (), {})
PATH = "/v1/nodes/n1/sli"
NOW = int(time.time()) // 60 * 60


def row(minute: int = NOW, good: int = 1, **more: Any) -> SliRow:
    return SliRow("shop", "p", "uid", "fast", "hash", Role.SERVER, minute, good=good, **more)


@pytest.fixture
def uplink(directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path) -> Uplink:
    directory = Directory(directory_server.url, "n1", token_file=token_file, ca_file=tls_files[0])
    directory_server.answers["/v1/nodes/n1/status"] = (200, {})
    return Uplink(directory, "i", status_interval_s=60)


def batches(directory_server: Any) -> list[dict[str, Any]]:
    return [document for path, _, document in directory_server.requests if path == PATH]


class Ingest:
    """The directory's side of the sequence rule."""

    def __init__(self, expected: int | None = None) -> None:
        self.expected = expected
        self.good = 0
        self.lose_answers = 0

    def __call__(self, batch: dict[str, Any]) -> tuple[int, Any]:
        expected = batch["sequence"] if self.expected is None else self.expected
        if batch["sequence"] > expected:
            return 409, {"expected": expected}
        if batch["sequence"] == expected:
            self.good += sum(entry["good"] for entry in batch["rows"])
            self.expected = expected + 1
        if self.lose_answers:
            self.lose_answers -= 1
            return 503, "answer lost"
        return 200, {"expected": self.expected}


def test_batches_are_numbered_one_after_the_other(directory_server: Any, uplink: Uplink) -> None:
    ingest = Ingest()
    directory_server.answers[PATH] = (200, ingest)
    uplink.start()
    for count in range(1, 4):
        uplink.add([row(good=1)])
        wait_until(lambda count=count: ingest.good == count)  # type: ignore[misc]  # bound per turn
    uplink.stop(5)
    assert [batch["sequence"] for batch in batches(directory_server)] == [0, 1, 2]


def test_a_lost_answer_counts_nothing_twice(directory_server: Any, uplink: Uplink) -> None:
    ingest = Ingest()
    ingest.lose_answers = 1
    directory_server.answers[PATH] = (200, ingest)
    uplink.add([row(good=5)])
    uplink.start()
    wait_until(lambda: len(batches(directory_server)) == 2)
    uplink.add([row(good=2)])
    wait_until(lambda: len(batches(directory_server)) == 3)
    uplink.stop(5)
    assert ingest.good == 7


def test_after_a_gap_the_expected_number_is_used(directory_server: Any, uplink: Uplink) -> None:
    ingest = Ingest()
    directory_server.answers[PATH] = (200, ingest)
    uplink.start()
    for good in (1, 2):
        uplink.add([row(good=1)])
        wait_until(lambda good=good: ingest.good == good)  # type: ignore[misc]  # bound per turn
    ingest.expected = 1  # restored from an older store
    uplink.add([row(good=10)])
    wait_until(lambda: ingest.good == 12)
    uplink.stop(5)


def test_rows_of_one_minute_wait_as_one(directory_server: Any, uplink: Uplink) -> None:
    directory_server.answers[PATH] = (200, Ingest())
    uplink.add([row(good=1), row(good=2)])
    uplink.add([row(good=4)])
    uplink.start()
    wait_until(lambda: bool(batches(directory_server)))
    uplink.stop(5)
    assert [entry["good"] for entry in batches(directory_server)[0]["rows"]] == [7]


def test_a_refused_document_is_dropped_and_counted(directory_server: Any, uplink: Uplink) -> None:
    directory_server.answers[PATH] = (400, "rows[0].minute: in the future")
    uplink.add([row(), row(minute=NOW + 60)])
    uplink.start()
    wait_until(lambda: uplink.dropped == 2)
    uplink.stop(5)
    assert len(batches(directory_server)) == 1


def test_counts_older_than_a_day_are_dropped_and_counted(uplink: Uplink) -> None:
    uplink.add([row(minute=NOW - 25 * 3600), row()])
    assert uplink.dropped == 1


def test_a_changed_status_goes_at_once_an_equal_one_waits(directory_server: Any, uplink: Uplink) -> None:
    uplink.start()
    uplink.report(STATUS)
    wait_until(lambda: len(directory_server.requests) == 1)
    uplink.report(STATUS)
    uplink.report(AgentStatus("i", "boot", "0.1", 2, {}, "", (), {}))
    wait_until(lambda: len(directory_server.requests) == 2)
    uplink.stop(5)
    assert [document["generation"] for _, _, document in directory_server.requests] == [1, 2]


def test_what_is_left_goes_at_the_end(directory_server: Any, uplink: Uplink) -> None:
    ingest = Ingest()
    directory_server.answers[PATH] = (200, ingest)
    uplink.start()
    uplink.add([row(minute=NOW + 60 * i) for i in range(600)])
    uplink.stop(10)
    assert ingest.good == 600
