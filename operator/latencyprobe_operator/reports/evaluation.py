"""The evaluation of all objectives, once a minute, when the minute's counts are complete."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports import documents
from latencyprobe_operator.reports.expected import LAG_S, ExpectedTime, missing_nodes
from latencyprobe_operator.reports.store_thread import StoreThread
from latencyprobe_operator.reports.writer import ReportWriter

OBSERVE_S = 2.0
_SLICE = 100  # groups of objectives whose expected time is stored at once


class Evaluation:
    """A loop. `probes`: all valid LatencyProbes; `upload_s`: the pause between two uploads of an agent; `evaluated` is
    set after each evaluation, before its reports are written. `counts`: objectives that were evaluated, `ok` or
    `failed`."""

    name = "evaluation"

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        store_thread: StoreThread,
        writer: ReportWriter,
        *,
        probes: Callable[[], Mapping[Key, LatencyProbe]],
        upload_s: Callable[[], float],
        evaluated: Trigger,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._probes = probes
        self._upload_s = upload_s
        self._planner = planner
        self._agents = agents
        self._store_thread = store_thread
        self._writer = writer
        self._evaluated = evaluated
        self._expected = ExpectedTime()
        self._reports: dict[str, documents.Document] = {}

    async def due(self, *, failed: bool) -> None:
        """Wait until the counts of a minute are complete."""
        await asyncio.sleep(MINUTE_S - (time.time() - self._upload_s() - LAG_S) % MINUTE_S)

    async def turn(self) -> None:
        """Store the expected time, evaluate, write the reports that changed. In slices: counts of agents are stored
        between them."""
        now, probes = int(time.time()), list(self._probes().values())
        run, store = self._store_thread.run, self._store_thread.store
        finished = self._expected.finished(now, self._upload_s())
        for first in range(0, len(finished), _SLICE):
            await run(store.expect, finished[first : first + _SLICE])
        await run(documents.define, store, probes)
        states = self._agents.states(self._planner.nodes, self._planner.plan_of, time.monotonic())
        missing = missing_nodes(self._planner.plans, states)
        self._reports = {
            namespace: await run(documents.evaluate, store, owners, now, missing)
            for namespace, owners in documents.by_namespace(probes).items()
        }
        for report in self._reports.values():
            self.counts.update("failed" if "reason" in result else "ok" for result in report["results"])
        self._evaluated.set()
        await self._writer.write(self._reports)

    async def observe(self) -> None:
        """Add the time since the last call to what is expected of the nodes that should measure now."""
        self._expected.observe(self._planner.plans, self._agents, time.monotonic(), time.time())

    def figures(self, key: Key) -> list[documents.Document]:
        """Return a LatencyProbe's results of the last evaluation."""
        results = self._reports.get(key[0], {}).get("results", ())
        return [result for result in results if result["probe"] == key[1]]
