"""The statuses of all LatencyProbes, brought up to date when something changed and from time to time."""

import asyncio
import datetime
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

from latencyprobe_operator.cluster.loops import Loops, Trigger, in_slices
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.status.conditions import StoreState
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.reconcile import Status
from latencyprobe_operator.status.registry import Registry
from latencyprobe_operator.status.status import Figures, status
from latencyprobe_operator.status.writer import StatusWriter

PAUSE_S = 2.0  # statuses are written at most this often
UNCHANGED_S = 8.0  # time alone changes states: an agent falls silent
SETTLING_S = 20.0  # by then an agent that is back has reported


class Told(NamedTuple):
    """What else statuses tell. `figures`: a LatencyProbe's results of the last evaluation; `placement`: what keeps
    agents from nodes; `store`: how the store of counts is; `rules`: why the PrometheusRules of one are not written
    (reason, message), None while they are or shall not be."""

    figures: Callable[[Key], Figures]
    placement: Callable[[], Placement]
    store: Callable[[], StoreState] = StoreState
    rules: Callable[[Key], tuple[str, str] | None] = lambda _: None


class Statuses:
    """A loop. `changed` makes a turn due; `loops` counts the LatencyProbes whose status cannot be made; `return_s`:
    over what time agents come back after our start."""

    name = "statuses"

    def __init__(
        self,
        registry: Registry,
        planner: Planner,
        agents: Agents,
        writer: StatusWriter,
        *,
        told: Told,
        changed: Trigger,
        loops: Loops,
        return_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._registry = registry
        self._planner = planner
        self._agents = agents
        self._writer = writer
        self._told = told
        self._changed = changed
        self._loops = loops
        self._return_s = return_s
        self._began_s: float | None = None
        self._failing: set[Key] = set()

    async def due(self, *, failed: bool) -> None:
        """Wait for a change, or for as long as states stay true without one."""
        await asyncio.sleep(PAUSE_S)
        await self._changed.wait(UNCHANGED_S)

    async def turn(self) -> None:
        """Write the statuses that differ."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self._writer.write(await in_slices(self.desired(time.monotonic(), now)), self._registry)

    def desired(self, now_s: float, now: str) -> Generator[None, None, dict[Key, Status]]:
        """Return the statuses as they should be now, without those of LatencyProbes that must wait for their plan or
        their agents, and of those whose status cannot be made. `now_s`: monotonic clock; `now`: ISO 8601."""
        self._began_s = now_s if self._began_s is None else self._began_s
        settling = now_s - self._began_s < SETTLING_S + self._return_s()
        found, probes, failing = {}, self._registry.probes, set()
        store, placement = self._told.store(), self._told.placement()
        known: dict[str, NodeState] = {}  # of nodes that other LatencyProbes measure too
        for key, entry in list(self._registry.entries.items()):
            yield  # others may run: one of Cluster scope has as many agents as there are nodes
            resolved = self._planner.resolved.get(key)
            if entry.probe is not None and (resolved is None or resolved.probe != probes[key]):
                continue  # planned in a moment
            nodes = resolved.nodes if resolved is not None else frozenset()
            known |= self._agents.states(nodes - known.keys(), self._planner.plan_of, now_s)
            states = {node: known[node] for node in sorted(nodes)}
            if settling and NodeState.STARTING in states.values() and self._registry.written.get(key):
                continue  # it was ready before our restart, and its agents report again within moments
            try:
                found[key] = status(
                    entry,
                    resolved if entry.probe is not None else None,
                    states=states,
                    agents=self._agents,
                    figures=self._told.figures(key),
                    previous=self._registry.written.get(key),
                    now=now,
                    placement=placement,
                    suspended_by=self._registry.suspended_by,
                    store=store,
                    rules=self._told.rules(key),
                )
            except Exception as error:  # whatever it is, the others' statuses are written
                self._loops.failed(self.name, error, known=key in self._failing)
                failing.add(key)
        self._failing = failing
        return found
