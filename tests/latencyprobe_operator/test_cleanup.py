"""The clean-up before uninstalling."""

import asyncio

from latencyprobe_operator import cleanup
from latencyprobe_operator.cluster.calls import FakeCluster


def test_cleanup_sweeps_until_neither_label_nor_agent_is_left() -> None:
    cluster = FakeCluster()
    cluster.labelled, cluster.agents = [("n1", "u1")], ["agent-1"]

    async def sweep() -> str:
        return await cleanup._sweep(cluster, "agents")

    assert asyncio.run(sweep()) == "node labels n1; agent pods agent-1"
    assert cluster.calls == [("label_node", "n1", "u1", False)]
    cluster.labelled, cluster.agents = [], []
    assert asyncio.run(sweep()) == ""
