import time
from dataclasses import dataclass, field

import msgspec
import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus
from latencyprobe_agent.directory import reporting as module
from latencyprobe_agent.directory.client import DocumentError, FakeDirectory
from latencyprobe_agent.directory.reporting import Reporting
from latencyprobe_agent.directory.returning import Returning
from tests.support.waiting import wait_until

STATUS = AgentStatus("i", "boot", "0.1", 1, {}, "", (), {})


@dataclass
class Refusing(FakeDirectory):
    """Refuses the first status."""

    refusal: DirectoryError
    returning: Returning = field(default_factory=lambda: Returning("n1"))
    asked: list[AgentStatus] = field(default_factory=list)  # type: ignore[assignment]

    def status(self, status: AgentStatus) -> None:
        self.asked.append(status)  # type: ignore[arg-type]
        if len(self.asked) == 1:
            raise self.refusal


def generation(number: int) -> AgentStatus:
    return msgspec.structs.replace(STATUS, generation=number)


def test_a_changed_status_goes_at_once_an_equal_one_waits() -> None:
    directory = FakeDirectory()
    reporting = Reporting(directory, 60)
    reporting.start()
    reporting.report(STATUS)
    wait_until(lambda: directory.statuses)
    reporting.report(msgspec.structs.replace(STATUS, lost={"counts": 3}))
    reporting.report(generation(2))
    reporting.stop(5)
    assert [1, 2] == [status.generation for status in directory.statuses]


def test_of_many_plans_in_a_large_cluster_the_newest_is_told_in_time_and_trouble_at_once() -> None:
    directory = FakeDirectory()
    directory.returning.told(2.0)
    reporting = Reporting(directory, 60)
    reporting.start()
    began_s = time.monotonic()
    reporting.report(generation(1))
    wait_until(lambda: directory.statuses)
    for number in range(2, 50):
        reporting.report(generation(number))
    reporting.report(msgspec.structs.replace(generation(50), error="no BTF"))
    wait_until(lambda: len(directory.statuses) == 2)
    reporting.report(msgspec.structs.replace(generation(51), error="no BTF"))
    wait_until(lambda: len(directory.statuses) == 3)
    took_s = time.monotonic() - began_s
    reporting.stop(5)
    assert [1, 50, 51] == [status.generation for status in directory.statuses]
    assert took_s >= 1, "half of what the directory said"


def test_a_part_that_begins_to_fail_is_told_at_once() -> None:
    directory = FakeDirectory()
    reporting = Reporting(directory, 60)
    reporting.start()
    for failing in ({}, {"spool": "the disk is full"}):
        reporting.report(msgspec.structs.replace(STATUS, failing=failing))
        wait_until(lambda failing=failing: directory.statuses and directory.statuses[-1].failing == failing)
    reporting.stop(5)


def test_a_status_that_did_not_arrive_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    directory = Refusing(DirectoryError("503"))
    reporting = Reporting(directory, 60)
    reporting.start()
    reporting.report(STATUS)
    wait_until(lambda: len(directory.asked) == 2)
    reporting.stop(5)


def test_a_status_that_is_refused_is_said_again_at_the_next_change() -> None:
    directory = Refusing(DocumentError("400"))
    reporting = Reporting(directory, 60)
    reporting.start()
    for number in (1, 2):
        reporting.report(generation(number))
        wait_until(lambda number=number: len(directory.asked) == number)
    reporting.stop(5)
