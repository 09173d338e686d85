"""The evaluation of all objectives, once a minute, when the minute's counts are complete."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from latencyprobe.errors import StoreError
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports import documents
from latencyprobe_operator.reports.expected import LAG_S, ExpectedTime
from latencyprobe_operator.reports.judging import Judged, Judging
from latencyprobe_operator.reports.shared_store import SharedStore
from latencyprobe_operator.reports.store_thread import StoreThread
from latencyprobe_operator.reports.writer import ReportWriter

OBSERVE_S = 2.0
_SLICE = 100  # groups of objectives whose expected time is stored at once


class Evaluation:
    """A loop. `probes`: all valid LatencyProbes; `upload_s`: the pause between two uploads of an agent; `evaluated` is
    set after each evaluation, before its reports are written. `counts`: objectives that were evaluated, `ok` or
    `failed`; `expected`: how long each should have been measured; `shared`: as of Judging."""

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
        shared: SharedStore | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.expected = ExpectedTime()
        self._probes = probes
        self._upload_s = upload_s
        self._planner = planner
        self._agents = agents
        self._judging = Judging(planner, agents, store_thread, shared)
        self._writer = writer
        self._evaluated = evaluated
        self._last = Judged({}, "")

    @property
    def incomplete(self) -> str:
        """Why results lack the latest counts, as they say it themselves; empty while they have them."""
        return self._last.incomplete

    async def due(self, *, failed: bool) -> None:
        """Wait until the counts of a minute are complete, or the store fails or works again."""
        await self._judging.own.changed.wait(MINUTE_S - (time.time() - self._upload_s() - LAG_S) % MINUTE_S)

    async def turn(self) -> None:
        """Store the expected time, evaluate, write the reports that changed. In slices: counts of agents are stored
        between them."""
        now, probes = int(time.time()), list(self._probes().values())
        self.expected.finish(now, self._upload_s())
        away = None
        try:
            await self._store(probes)
        except StoreError as error:
            if not error.reason:
                raise
            away = error
        self._last = await self._judging.judged(probes, now, away)
        for report in self._last.reports.values():
            self.counts.update("failed" if "reason" in result else "ok" for result in report["results"])
        self._evaluated.set()
        await self._writer.write(self._last.reports)

    async def _store(self, probes: list[LatencyProbe]) -> None:
        """Store the definitions, and the expected time of minutes that are over, which waits if that cannot be."""
        waiting = self.expected.waiting
        while waiting:
            some = waiting[:_SLICE]
            await self._judging.own.run(self._judging.own.store.expect, some)
            del waiting[: len(some)]
        await self._judging.own.run(documents.define, self._judging.own.store, probes)

    async def observe(self) -> None:
        """Add the time since the last call to what is expected of the nodes that should measure now."""
        self.expected.observe(self._planner.plans, self._agents, time.monotonic(), time.time())

    def figures(self, key: Key) -> list[documents.Document]:
        """Return a LatencyProbe's results of the last evaluation."""
        results = self._last.reports.get(key[0], {}).get("results", ())
        return [result for result in results if result["probe"] == key[1]]
