"""The label that lets the agent run on a node: on exactly the nodes that must measure."""

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.loops import RETRY_S, Trigger
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.status.reconcile import LabelChange, label_changes


class Labels:
    """A loop: after each plan, and again until it worked. `planned` makes a turn due."""

    name = "labels"

    def __init__(
        self, cluster: Cluster, writes: Writes, state: ClusterState, planner: Planner, planned: Trigger
    ) -> None:
        self._cluster = cluster
        self._writes = writes
        self._state = state
        self._planner = planner
        self._planned = planned

    async def due(self, *, failed: bool) -> None:
        """Wait for a plan; after a failure not for long."""
        await self._planned.wait(RETRY_S if failed else None)

    async def turn(self) -> None:
        """Write the labels that differ, each of them whatever becomes of the others. Raises ClusterError when some
        could not be written."""
        changes, worked = label_changes(self._planner.nodes, self._state.nodes()), list[bool]()

        async def one(change: LabelChange) -> None:
            worked.append(await self._writes.attempt("label", self._cluster.label_node(*change)))

        await self._writes.each(changes, one)
        if not all(worked):
            raise ClusterError(f"{worked.count(False)} of {len(worked)} node labels could not be written: trying again")
