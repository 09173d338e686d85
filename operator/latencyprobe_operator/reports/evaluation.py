"""The evaluation of all objectives, once a minute, when the minute's counts are complete; of namespaces whose
LatencyProbes were edited within moments."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from latencyprobe.errors import StoreError
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.loops import Trigger, in_slices
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports import documents
from latencyprobe_operator.reports.expected import LAG_S, ExpectedTime
from latencyprobe_operator.reports.judging import Judging
from latencyprobe_operator.reports.shared_store import SharedStore
from latencyprobe_operator.reports.store_thread import StoreThread

OBSERVE_S = 2.0
SETTLE_S = 3.0  # of a burst of edits: a namespace's report is written no more often for them


class _Last(NamedTuple):
    """The last evaluation: what became of it by namespace, why results lack the latest counts, and of which
    LatencyProbes it was."""

    found: dict[str, documents.Evaluated]
    incomplete: str
    probes: dict[str, list[LatencyProbe]]


class _Nodes(NamedTuple):
    """What nodes should measure, and what their agents tell."""

    planner: Planner
    agents: Agents


class Evaluation:
    """A loop. `probes`: all valid LatencyProbes; `upload_s`: the pause between two uploads of an agent; `evaluated` are
    set after each evaluation. `counts`: objectives that were evaluated, `ok` or `failed`; `expected`: how long each
    should have been measured; `shared`, `why_not`: as of Judging."""

    name = "evaluation"

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        store_thread: StoreThread,
        *,
        probes: Callable[[], Mapping[Key, LatencyProbe]],
        upload_s: Callable[[], float],
        evaluated: Sequence[Trigger],
        shared: SharedStore | None = None,
        why_not: Callable[[], Mapping[Key, str]] = dict,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.expected = ExpectedTime()
        self._probes = probes
        self._upload_s = upload_s
        self._nodes = _Nodes(planner, agents)
        self._judging = Judging(planner, agents, store_thread, shared, why_not, lag_s=lambda: upload_s() + LAG_S)
        self._evaluated = evaluated
        self._last = _Last({}, "", {})
        self._alone = asyncio.Lock()

    @property
    def incomplete(self) -> str:
        """Why results lack the latest counts, as they say it themselves; empty while they have them."""
        return self._last.incomplete

    @property
    def reports(self) -> Mapping[str, documents.Document]:
        """The reports of the last evaluation, by namespace."""
        return {namespace: one.report for namespace, one in self._last.found.items()}

    async def due(self, *, failed: bool) -> None:
        """Wait until the counts of a minute are complete, or the store fails or works again."""
        await self._judging.own.changed.wait(MINUTE_S - (time.time() - self._upload_s() - LAG_S) % MINUTE_S)

    async def turn(self) -> None:
        """Store the expected time and evaluate. In slices: counts of agents are stored between them."""
        async with self._alone:
            await in_slices(self.expected.finish(int(time.time()), self._upload_s()))
            await self._evaluate(documents.by_namespace(self._probes().values()))

    async def edited(self) -> None:
        """Evaluate the namespaces whose LatencyProbes came, changed or went since then, and no others."""
        async with self._alone:
            grouped, before = documents.by_namespace(self._probes().values()), self._last.probes
            changed = {ns for ns in grouped.keys() | before.keys() if grouped.get(ns) != before.get(ns)}
            if changed:
                await self._evaluate(grouped, changed)

    async def _evaluate(self, grouped: dict[str, list[LatencyProbe]], changed: Set[str] | None = None) -> None:
        """Evaluate namespaces, by default all."""
        now, probes = int(time.time()), [probe for owners in grouped.values() for probe in owners]
        chosen = [probe for probe in probes if changed is None or probe.namespace in changed]
        away = None
        try:
            await self._store(probes)
        except StoreError as error:
            if not error.reason:
                raise
            away = error
        found, why = await self._judging.judged(chosen, now, away)
        if changed is not None and why != self._last.incomplete:
            await self._evaluate(grouped)  # the store failed, or works again: that is about all of them
            return
        for result in (result for one in found.values() for results in one.figures.values() for result in results):
            self.counts["failed" if result.get("reason") else "ok"] += 1
        kept = {ns: one for ns, one in self._last.found.items() if ns in grouped} if changed else {}
        self._last = _Last(kept | found, why, grouped)
        for evaluated in self._evaluated:
            evaluated.set()

    async def _store(self, probes: list[LatencyProbe]) -> None:
        """Store what is to be evaluated: counts that came, definitions, and the expected time of minutes that are over,
        which waits if that cannot be."""
        await self._judging.own.run(self._judging.own.store.settle)
        waiting = self.expected.waiting
        while some := waiting.some():
            waiting.forgotten += await self._judging.own.run(self._judging.own.store.expect, some)  # too late
            waiting.stored(some)
        await self._judging.own.run(documents.define, self._judging.own.store, probes)

    async def observe(self) -> None:
        """Add the time since the last call to what is expected of the nodes that should measure now."""
        planner, agents = self._nodes
        await in_slices(self.expected.observe(planner.plans, agents, time.monotonic(), time.time()))

    def figures(self, key: Key) -> list[documents.Document]:
        """Return a LatencyProbe's results of the last evaluation, the worst first."""
        found = self._last.found.get(key[0])
        return found.figures.get(key[1], []) if found else []


class Edits:
    """A loop: evaluates what was edited. `edited` makes a turn due."""

    name = "edits"

    def __init__(self, evaluation: Evaluation, edited: Trigger) -> None:
        self._evaluation = evaluation
        self._edited = edited

    async def due(self, *, failed: bool) -> None:
        """Wait for an edit, and for those that come with it; what a failed turn left undone is one."""
        if failed:
            self._edited.set()
        await self._edited.wait(settle_s=SETTLE_S)

    async def turn(self) -> None:
        """Evaluate the namespaces that were edited."""
        await self._evaluation.edited()
