"""Carries out the writes that `reconcile.py` finds needed: node labels, statuses, events.

Nothing is remembered as written that was not.
"""

from collections.abc import Mapping

from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes, alive
from latencyprobe_operator.status import reconcile
from latencyprobe_operator.status.registry import Registry


class StatusWriter:
    """What LatencyProbes and nodes get to say."""

    def __init__(self, cluster: Cluster, writes: Writes) -> None:
        self._cluster = cluster
        self._writes = writes

    async def labels(self, expected: frozenset[str], state: ClusterState) -> bool:
        """Make exactly the expected nodes carry our label; returns whether all writes worked."""
        worked = True
        for change in reconcile.label_changes(expected, state.nodes()):
            worked &= await self._writes.attempt("label", self._cluster.label_node(*change))
        return worked

    async def statuses(self, desired: Mapping[Key, reconcile.Status], registry: Registry, state: ClusterState) -> None:
        """Write the statuses that changed, and the events that the changes are worth."""
        for key in reconcile.status_writes(desired, registry.written):
            if key not in registry.entries:
                continue  # deleted while others were written
            uid, old, new = registry.entries[key].uid, registry.written.get(key), desired[key]
            if await self._writes.attempt("status", self._cluster.write_status(*key, uid, new)):
                registry.written[key] = new
                for event in reconcile.transitions(new, old) if alive(state, key[0]) else ():
                    about = {"namespace": key[0], "name": key[1], "uid": uid}
                    await self._writes.attempt("event", self._cluster.post_event(about, *event))
