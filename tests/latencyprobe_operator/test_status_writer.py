"""Writes that work are remembered, writes that fail are asked for again."""

import asyncio
from typing import Any

from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.status.registry import Registry
from latencyprobe_operator.status.writer import StatusWriter

KEY = ("shop", "checkout")


def test_status_is_written_once_and_its_event_posted_once(make: Any, cluster: Any) -> None:
    writer, registry = StatusWriter(cluster, Writes(), make.state()), Registry(lambda: None)
    registry.put(make.document())
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    for _ in range(2):
        asyncio.run(writer.write({KEY: {"conditions": [ready]}}, registry))
    assert [call[0] for call in cluster.calls] == ["write_status", "post_event"]


def test_no_event_is_posted_into_a_namespace_that_is_going_away(make: Any, cluster: Any) -> None:
    leaving = make.state(Namespace("shop", terminating=True))
    writer, registry = StatusWriter(cluster, Writes(), leaving), Registry(lambda: None)
    registry.put(make.document())
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    asyncio.run(writer.write({KEY: {"conditions": [ready]}}, registry))
    assert [call[0] for call in cluster.calls] == ["write_status"]


def test_status_that_failed_is_written_again(make: Any, cluster: Any) -> None:
    writer, registry = StatusWriter(cluster, Writes(), make.state()), Registry(lambda: None)
    registry.put(make.document())
    cluster.fails = {"write_status"}
    asyncio.run(writer.write({KEY: {"conditions": []}}, registry))
    cluster.fails = set()
    asyncio.run(writer.write({KEY: {"conditions": []}}, registry))
    assert [call[0] for call in cluster.calls] == ["write_status", "write_status"]
