"""Plans after each change, passed on to the agents' streams, the ingest of counts, the labels and the statuses."""

import logging
import time
from collections.abc import Callable, Sequence, Set
from typing import Protocol

from latencyprobe_operator.cluster.loops import RETRY_S, Trigger, in_slices
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.directory.asked import Asked
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.deliveries import Change, Deliveries
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.status.registry import Registry

log = logging.getLogger(__name__)

SETTLE_S = 0.2  # of a burst of changes
_NAMED = 10  # namespaces, in a trace


class Streams(Protocol):
    """The part of `Directory` that takes what agents are told."""

    def changing(self, changes: Changes) -> None: ...  # noqa: D102 - see Directory
    def publish(self, nodes: Set[str]) -> Set[str]: ...  # noqa: D102 - see Directory
    def forget(self, addresses: Set[str]) -> None: ...  # noqa: D102 - see Directory


class Planning:
    """A loop. `changed` makes a turn due; `streams` get what agents are told, `deliveries` waits for those that read it
    now; `planned` are called after each plan; `suspended_by`: what stops all measuring, empty while nothing does."""

    name = "planning"

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        registry: Registry,
        state: ClusterState,
        asked: Asked,
        *,
        changed: Trigger,
        streams: Streams,
        planned: Sequence[Callable[[], None]],
        suspended_by: Callable[[], str] = str,
        deliveries: Deliveries,
    ) -> None:
        self._planner = planner
        self._agents = agents
        self._registry = registry
        self._state = state
        self._asked = asked
        self._changed = changed
        self._streams = streams
        self._planned = planned
        self._suspended_by = suspended_by
        self._deliveries = deliveries

    async def due(self, *, failed: bool) -> None:
        """Wait for a change; what a failed turn left undone is one, and that a node's time to stay is over."""
        if failed:
            self._changed.set()
        next_s = self._planner.staying.next_s
        at_most_s = None if next_s is None else max(0.0, next_s - time.monotonic())
        await self._changed.wait(at_most_s, settle_s=RETRY_S if failed else SETTLE_S)

    async def turn(self) -> None:
        """Bring the plans up to date, in slices: streams, heartbeats and answers go on meanwhile."""
        began_s, changes = time.monotonic(), self._state.take_changes()
        self._streams.changing(changes)
        if (by := self._suspended_by()) != self._registry.suspended_by:
            log.warning("all measuring is %s", f"suspended by {by}" if by else "taken up again")
            self._registry.suspended_by = by
            self._planner.suspend(bool(by))
        edited = self._edited()
        work = self._planner.work(self._registry.probes, self._state, changes, began_s)
        changed = await in_slices(work)
        self._streams.forget(self._agents.planned(changed, self._planner.nodes, time.monotonic()))
        await in_slices(self._asked.work([self._planner.plan_of(node) for node in changed]))
        reading = self._streams.publish(changed)
        named = tuple(sorted(changes.namespaces | edited)[:_NAMED])
        change = Change(min(self._changed.set_s, began_s), began_s, time.monotonic(), len(changed), named)
        self._deliveries.planned(change, {node: self._planner.plan_of(node).generation for node in reading})
        for planned in self._planned:
            planned()

    def use_pair_key(self, pair_key: bytes) -> None:
        """Give the agents another pairing key."""
        if self._planner.use_pair_key(pair_key):
            self._changed.set()

    def _edited(self) -> set[str]:
        """Return the namespaces of LatencyProbes that came, changed or went since the last plan."""
        probes, planned = self._registry.probes, self._planner.resolved
        same = (key for key in probes.keys() & planned.keys() if planned[key].probe is probes[key])
        return {namespace for namespace, _ in (probes.keys() | planned.keys()).difference(same)}
