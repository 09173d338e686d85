"""Beside each LatencyReport the same for openreports.io: where it changed, if there is such a kind, over nobody's."""

import asyncio
from typing import Any

import pytest

from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.owners import reference
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports.mirror import Mirror
from latencyprobe_operator.reports.writer import ReportWriter


class World:
    """Who writes the reports of these namespaces, one of which is going away."""

    def __init__(self, make: Any, cluster: FakeCluster) -> None:
        self.cluster, self.writes = cluster, Writes()
        state = make.state(Namespace("bank"), Namespace("leaving", terminating=True))
        self.mirror = Mirror(ReportWriter(cluster, self.writes, state), cluster, self.writes, state)
        self.reports = {name: document(name) for name in ("shop", "bank", "leaving")}

    def turn(self) -> list[tuple[str, str]]:
        """What is written now, and where."""
        before = len(self.cluster.calls)
        asyncio.run(self.mirror.write(self.reports))
        return [call[:2] for call in self.cluster.calls[before:]]


def document(namespace: str, **summary: int) -> dict[str, Any]:
    """A LatencyReport without results."""
    counts = dict.fromkeys(("met", "atRisk", "violated", "incomplete", "noData"), 0) | summary
    metadata = {"name": "latency", "namespace": namespace, "ownerReferences": [reference("checkout", "u1")]}
    kind = {"apiVersion": "latencyprobe.dev/v1alpha1", "kind": "LatencyReport"}
    return {**kind, "metadata": metadata, "summary": counts, "results": []}


@pytest.fixture
def world(make: Any, cluster: FakeCluster) -> World:
    return World(make, cluster)


def test_both_are_written_where_they_changed_and_never_into_a_namespace_that_is_going_away(
    make: Any, world: World
) -> None:
    both = [("write_report", "shop"), ("write_report", "bank"), ("write_open_report", "shop")]
    assert world.turn() == [*both, ("write_open_report", "bank")]
    assert world.turn() == []
    world.reports["shop"] = document("shop", met=1)
    assert world.turn() == [("write_report", "shop"), ("write_open_report", "shop")]
    assert world.cluster.mirrored["shop"]["summary"]["pass"] == 1


def test_without_the_kind_one_write_is_tried_a_time_and_with_it_all_are_written(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.knows = False
    assert [call for call in world.turn() if call[0] == "write_open_report"] == [("write_open_report", "shop")]
    assert "there is no kind Report (openreports.io/v1alpha1): install its CRD" in caplog.text
    assert world.turn() == [("write_open_report", "shop")]
    assert world.writes.counts["open_report", "error"] == 2
    world.cluster.knows = True
    assert world.turn() == [("write_open_report", "shop"), ("write_open_report", "bank")]


def test_a_report_of_somebody_else_stays_as_it_is(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.cluster.mirrored["shop"] = {"metadata": {"name": "latencyprobe"}}
    assert ("write_open_report", "shop") not in world.turn()
    assert "Report shop/latencyprobe is not the operator's" in caplog.text
    del world.cluster.mirrored["shop"]
    assert world.turn() == [("write_open_report", "shop")]


def test_what_failed_is_written_again(world: World) -> None:
    world.cluster.fails = {"write_open_report"}
    world.turn()
    world.cluster.fails = set()
    assert world.turn() == [("write_open_report", "shop"), ("write_open_report", "bank")]
