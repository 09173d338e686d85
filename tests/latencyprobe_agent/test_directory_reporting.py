import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus, TargetStatus
from latencyprobe_agent.directory import reporting as module
from latencyprobe_agent.directory.client import DocumentError, FakeDirectory
from latencyprobe_agent.directory.reporting import Reporting
from latencyprobe_agent.directory.returning import Returning
from latencyprobe_operator.directory.server import MAX_STATUS_BYTES
from tests.support.waiting import wait_until

STATUS = AgentStatus("i", "boot", "0.1", 1, {}, "", (), {})


@dataclass
class Refusing(FakeDirectory):
    """Refuses the first status."""

    refusal: DirectoryError
    returning: Returning = field(default_factory=lambda: Returning("n1"))
    status_s: float = 0.0
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
    reporting.stop(60)
    assert [1, 2] == [status.generation for status in directory.statuses]


def test_a_new_plan_stream_gets_the_status_at_once_its_operator_may_know_nothing() -> None:
    directory = FakeDirectory()
    reporting = Reporting(directory, 60)
    reporting.start()
    reporting.report(STATUS)
    wait_until(lambda: directory.statuses)
    directory.returning.opened()
    wait_until(lambda: len(directory.statuses) == 2)
    reporting.stop(60)
    assert directory.statuses == [STATUS, STATUS]


@pytest.mark.parametrize(("interval_s", "wanted_s", "due"), [(0.01, 0.0, True), (0.01, 60.0, False)])
def test_an_equal_status_goes_as_seldom_as_the_directory_wants(interval_s: float, wanted_s: float, due: bool) -> None:
    directory = FakeDirectory()
    directory.status_s = wanted_s
    reporting = Reporting(directory, interval_s)
    reporting.report(STATUS)
    reporting._post(STATUS)
    wait_until(lambda: reporting._due() or time.monotonic() > reporting._sent_s + 10 * interval_s)
    assert reporting._due() is due


@pytest.mark.long
def test_of_many_plans_in_a_large_cluster_the_newest_is_told_in_time_and_trouble_at_once() -> None:
    directory = FakeDirectory()
    directory.returning.told(2.0)
    reporting = Reporting(directory, 60)
    reporting.start()
    began_s = time.monotonic()
    reporting.report(generation(1))
    wait_until(lambda: directory.statuses)
    with reporting._lock:  # at once
        for number in range(2, 50):
            reporting.report(generation(number))
        reporting.report(msgspec.structs.replace(generation(50), error="no BTF"))
    wait_until(lambda: len(directory.statuses) == 2)
    reporting.report(msgspec.structs.replace(generation(51), error="no BTF"))
    wait_until(lambda: len(directory.statuses) == 3)
    took_s = time.monotonic() - began_s
    reporting.stop(60)
    assert [1, 50, 51] == [status.generation for status in directory.statuses]
    assert took_s >= 1, "half of what the directory said"


@pytest.mark.parametrize("news", [{"failing": {"spool": "the disk is full"}}, {"loading": ("retransmits",)}])
def test_a_part_that_begins_to_fail_or_to_load_is_told_at_once(news: dict[str, Any]) -> None:
    directory = FakeDirectory()
    reporting = Reporting(directory, 60)
    reporting.start()
    for status in (STATUS, msgspec.structs.replace(STATUS, **news)):
        reporting.report(status)
        wait_until(lambda status=status: directory.statuses and directory.statuses[-1] == status)
    reporting.stop(60)


def targets(namespace: str, count: int, refused: str = "") -> list[TargetStatus]:
    return [TargetStatus(f"{namespace}/p/t{i}", i, {"pingpong": i}, {}, refused) for i in range(count)]


def test_a_status_has_room_and_a_namespace_with_too_many_targets_for_it_is_told_alone() -> None:
    directory = FakeDirectory()
    reporting = Reporting(directory, 60)
    reporting.start()
    shop, evil = targets("shop", 40), targets("evil", 20_000, "there is no room, and so on: " + "x" * 200)
    reporting.report(msgspec.structs.replace(STATUS, targets=(*evil, *shop)))
    wait_until(lambda: directory.statuses)
    reporting.stop(60)
    (told,) = directory.statuses
    assert len(msgspec.json.encode(told)) < MAX_STATUS_BYTES
    assert shop == [one for one in told.targets if one.id.startswith("shop/")]
    assert {"evil": 20_040 - len(told.targets)} == told.untold
    assert len(told.targets) > 2_000, "as many as there is room for"


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 40), min_size=1), st.integers(1_000, 5_000))
def test_who_has_no_more_than_an_equal_share_of_a_status_keeps_all(counts: dict[str, int], room: int) -> None:
    of = {namespace: targets(namespace, count) for namespace, count in counts.items()}
    whole = msgspec.structs.replace(STATUS, targets=tuple(one for some in of.values() for one in some))
    told = module.fitting(whole, room)
    assert len(msgspec.json.encode(msgspec.structs.replace(told, untold={}))) <= room
    assert len(whole.targets) - len(told.targets) == sum(told.untold.values())
    share = (room - len(msgspec.json.encode(STATUS))) / len(counts)
    for namespace, some in of.items():
        if sum(len(msgspec.json.encode(one)) + 1 for one in some) <= share:
            assert namespace not in told.untold
            assert some == [one for one in told.targets if one.id.startswith(f"{namespace}/")]


def test_refused_targets_are_told_first_and_counts_do_not_decide_which() -> None:
    refused = [TargetStatus(f"shop/z/t{i}", 0, {}, {}, "there is no room: " + "x" * 100) for i in range(10)]
    told = []
    for seen in (1, 10**9):
        measured = [TargetStatus(f"shop/p/t{i}", seen if i % 3 else 1, {}, {}) for i in range(40)]
        whole = msgspec.structs.replace(STATUS, targets=(*refused, *measured))
        status = module.fitting(whole, len(msgspec.json.encode(whole)) - 1_000)
        assert refused == list(status.targets[:10])
        told.append({one.id for one in measured} - {one.id for one in status.targets})
    smaller, larger = sorted(told, key=len)
    assert smaller <= larger


def test_a_status_that_did_not_arrive_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    directory = Refusing(DirectoryError("503"))
    reporting = Reporting(directory, 60)
    reporting.start()
    reporting.report(STATUS)
    wait_until(lambda: len(directory.asked) == 2)
    reporting.stop(60)


def test_a_status_that_is_refused_is_said_again_at_the_next_change() -> None:
    directory = Refusing(DocumentError("400"))
    reporting = Reporting(directory, 60)
    reporting.start()
    for number in (1, 2):
        reporting.report(generation(number))
        wait_until(lambda number=number: len(directory.asked) == number)
    reporting.stop(60)
