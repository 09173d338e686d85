"""The loop of the label: written after each plan, and again until it worked."""

import asyncio
from typing import Any

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Loops, Trigger
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.status import labels as labels_
from latencyprobe_operator.status.labels import Labels


@pytest.fixture
def planned(make: Any) -> Any:
    return make.planned(make.pod("cart-1"), make.pod("cart-2", node="n2"), clients={"scope": "None"})


def labels_of(planned: Any, cluster: FakeCluster, writes: Writes, trigger: Trigger) -> Labels:
    return Labels(cluster, writes, planned.state, planned.planner, trigger)


def test_label_that_could_not_be_written_is_reported_and_the_others_are_written(planned: Any) -> None:
    cluster, writes = FakeCluster(), Writes()
    cluster.fails = {"label_node"}

    async def play() -> None:
        await labels_of(planned, cluster, writes, Trigger()).turn()

    with pytest.raises(ClusterError, match="2 of 2 node labels"):
        asyncio.run(play())
    assert [call[1] for call in cluster.calls] == ["n1", "n2"]
    assert writes.counts == {("label", "error"): 2}


def test_labels_are_written_after_a_plan_and_after_a_failure_without_one(
    make: Any, planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels_, "RETRY_S", 0.01)
    cluster = FakeCluster()
    cluster.fails = {"label_node"}

    async def play() -> None:
        trigger = Trigger()
        task = asyncio.create_task(Loops().run(labels_of(planned, cluster, Writes(), trigger)))
        await asyncio.sleep(0)
        assert not cluster.calls, "nothing is planned yet"
        trigger.set()
        await make.until(lambda: len(cluster.calls) >= 4)
        task.cancel()

    asyncio.run(play())
