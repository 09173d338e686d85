"""Writes statuses that changed, and the events that the changes are worth.

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
    """The statuses of all LatencyProbes."""

    def __init__(self, cluster: Cluster, writes: Writes, state: ClusterState) -> None:
        self._cluster = cluster
        self._writes = writes
        self._state = state

    async def write(self, desired: Mapping[Key, reconcile.Status], registry: Registry) -> None:
        """Write the statuses that differ, and post their events where the namespace is not going away."""

        async def one(key: Key) -> None:
            if key not in registry.entries:
                return  # deleted while others were written
            uid, old, new = registry.entries[key].uid, registry.written.get(key), desired[key]
            if await self._writes.attempt("status", self._cluster.write_status(*key, uid, new)):
                registry.written[key] = new
                for event in reconcile.transitions(new, old) if alive(self._state, key[0]) else ():
                    about = {"namespace": key[0], "name": key[1], "uid": uid}
                    await self._writes.attempt("event", self._cluster.post_event(about, *event))

        await self._writes.each(reconcile.status_writes(desired, registry.written), one)
