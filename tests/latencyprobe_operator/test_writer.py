"""Writes that work are remembered, writes that fail are asked for again."""

import asyncio
from typing import Any

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.objects import Namespace
from latencyprobe_operator.registry import Registry
from latencyprobe_operator.writer import Writer

KEY = ("shop", "checkout")


class FakeCluster:
    """Takes calls down; `fails` names the calls that fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> None:
            self.calls.append((name, *args))
            if name in self.fails:
                raise ClusterError("away")

        return call


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def test_label_that_could_not_be_written_is_reported_and_the_others_are_written(
    make: Any, cluster: FakeCluster
) -> None:
    writer, state = Writer(cluster), make.state()  # type: ignore[arg-type]  # a fake
    cluster.fails = {"label_node"}
    assert asyncio.run(writer.labels(frozenset({"n1", "n2"}), state)) is False
    assert [call[1] for call in cluster.calls] == ["n1", "n2"]
    assert writer.counts == {("label", "error"): 2}


def test_status_is_written_once_and_its_event_posted_once(make: Any, cluster: FakeCluster) -> None:
    writer, registry = Writer(cluster), Registry(lambda: None)  # type: ignore[arg-type]  # a fake
    registry.put(make.document())
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    for _ in range(2):
        asyncio.run(writer.statuses({KEY: {"conditions": [ready]}}, registry, make.state()))
    assert [call[0] for call in cluster.calls] == ["write_status", "post_event"]


def test_no_event_is_posted_into_a_namespace_that_is_going_away(make: Any, cluster: FakeCluster) -> None:
    writer, registry = Writer(cluster), Registry(lambda: None)  # type: ignore[arg-type]  # a fake
    registry.put(make.document())
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    leaving = make.state(Namespace("shop", terminating=True))
    asyncio.run(writer.statuses({KEY: {"conditions": [ready]}}, registry, leaving))
    assert [call[0] for call in cluster.calls] == ["write_status"]


def test_status_that_failed_is_written_again(make: Any, cluster: FakeCluster) -> None:
    writer, registry = Writer(cluster), Registry(lambda: None)  # type: ignore[arg-type]  # a fake
    registry.put(make.document())
    cluster.fails = {"write_status"}
    asyncio.run(writer.statuses({KEY: {"conditions": []}}, registry, make.state()))
    cluster.fails = set()
    asyncio.run(writer.statuses({KEY: {"conditions": []}}, registry, make.state()))
    assert [call[0] for call in cluster.calls] == ["write_status", "write_status"]


def test_report_goes_to_living_namespaces_when_it_says_something_new(make: Any, cluster: FakeCluster) -> None:
    writer = Writer(cluster)  # type: ignore[arg-type]  # a fake
    state = make.state(Namespace("leaving", terminating=True))
    reports: dict[str, Any] = {ns: {"summary": {}, "results": []} for ns in ("shop", "leaving", "unknown")}
    for _ in range(2):
        asyncio.run(writer.reports(reports, state))
    assert [call[1] for call in cluster.calls] == ["shop"]
    asyncio.run(writer.reports({}, state))
    asyncio.run(writer.reports(reports, state))
    assert [call[1] for call in cluster.calls] == ["shop", "shop"]
