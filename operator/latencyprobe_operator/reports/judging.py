"""Who judges the objectives: our own store, or the shared one that the administrator names."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from latencyprobe.errors import StoreError
from latencyprobe.report import build, room
from latencyprobe.spec import LatencyProbe
from latencyprobe.store import Counts
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports import documents
from latencyprobe_operator.reports.expected import missing_nodes
from latencyprobe_operator.reports.shared_store import SharedStore
from latencyprobe_operator.reports.store_thread import StoreThread


class Judged(NamedTuple):
    """One evaluation: what became of it by namespace, and why results lack the latest counts."""

    found: dict[str, documents.Evaluated]
    incomplete: str


class Judging:
    """`own`: our own store, in its thread. `shared`: what judges in its place; while that does not answer our own
    figures are told, as Incomplete. `why_not`: why LatencyProbes are not measured, by key; `lag_s`: how late counts may
    come."""

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        own: StoreThread,
        shared: SharedStore | None,
        why_not: Callable[[], Mapping[Key, str]],
        *,
        lag_s: Callable[[], float],
    ) -> None:
        self.own = own
        self._planner = planner
        self._agents = agents
        self._shared = shared
        self._why_not = why_not
        self._lag_s = lag_s

    async def judged(self, probes: list[LatencyProbe], now: int, away: StoreError | None) -> Judged:
        """Evaluate each namespace. `away`: why our own store takes no counts."""
        if self._shared is None:
            return await self._by_own(probes, now, _lacking(away) if away else "")
        measured, grouped = self._measured(), documents.by_namespace(probes)

        def found(counts: Counts) -> dict[str, documents.Evaluated]:
            return {ns: documents.evaluate(counts, owners, now, measured) for ns, owners in grouped.items()}

        try:
            return Judged(await self._shared.run(found), "")
        except StoreError as error:
            return await self._by_own(probes, now, f"these are the operator's own counts: {error}"[: build.MAX_REASON])

    async def _by_own(self, probes: list[LatencyProbe], now: int, why: str) -> Judged:
        """Return the same by our own store, in slices. `why`: as `incomplete` of `build.judged`, of whatever can be
        read then."""
        measured, found = self._measured(), {}
        try:
            for namespace, owners in documents.by_namespace(probes).items():
                verdicts: list[room.Verdict] = []
                for some in documents.slices(owners):
                    store = self.own.readable if why else self.own.store
                    verdicts += await self.own.run(documents.judged, store, some, now, measured, why)
                found[namespace] = await self.own.run(documents.evaluated, verdicts, owners)
        except StoreError as error:
            if why:
                raise
            return await self._by_own(probes, now, _lacking(error))
        return Judged(found, why)

    def _measured(self) -> documents.Measured:
        states = self._agents.states(self._planner.nodes, self._planner.plan_of, time.monotonic())
        return documents.Measured(missing_nodes(self._planner.plans, states), self._why_not(), int(self._lag_s()))


def _lacking(error: StoreError) -> str:
    """Return why results lack the latest counts. Raises the error again where it is no such reason."""
    if not error.reason:
        raise error
    return f"the latest counts are missing: {error}"[: build.MAX_REASON]
