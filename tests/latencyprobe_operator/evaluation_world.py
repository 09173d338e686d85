"""The loop of the evaluation with all its parts, in a time of its own."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports import evaluation as evaluation_
from latencyprobe_operator.reports import judging
from latencyprobe_operator.reports.evaluation import Evaluation
from latencyprobe_operator.reports.reports import Reports
from latencyprobe_operator.reports.store_thread import StoreThread
from latencyprobe_operator.reports.writer import ReportWriter

KEY = ("shop", "checkout")
MINUTE = int(time.time()) // 60 * 60


class Clock:
    """Wall clock and monotonic clock in one, from a minute's start."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> float:
        return MINUTE + self.now_s

    def monotonic(self) -> float:
        return self.now_s


class World:
    """An evaluation of one LatencyProbe whose agent on n1 measures from the beginning."""

    full: Any = None

    def __init__(self, make: Any, store_thread: StoreThread, clock: Clock) -> None:
        self.clock, self.store_thread, self.cluster, self.evaluated = clock, store_thread, FakeCluster(), Trigger()
        self.planned = make.planned(make.pod("cart-1"), clients={"scope": "None"})
        self.planned.report("n1", 0)
        (self.objective,) = objectives(self.planned.probe)
        self.probes = {KEY: self.planned.probe}
        self.why_not: dict[Any, str] = {}
        self.refused: dict[Any, str] = {}
        self.evaluation = Evaluation(
            self.planned.planner,
            self.planned.agents,
            store_thread,
            probes=lambda: self.probes,
            upload_s=lambda: 5.0,
            evaluated=(self.evaluated,),
            why_not=lambda: self.why_not,
        )
        writer = ReportWriter(self.cluster, Writes(), self.planned.state)
        self.reports = Reports(writer, lambda: self.evaluation.reports, lambda: self.refused, self.evaluated)

    async def observe(self, until_s: int) -> None:
        """Let time run, and the evaluation look at the agents each second."""
        while self.clock.now_s < until_s:
            await self.evaluation.observe()
            self.clock.now_s += 1


def player(make: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return who runs a scene with a store of its own at `path`."""

    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        clock = Clock()
        for module in (evaluation_, judging):
            monkeypatch.setattr(module, "time", clock)

        async def whole() -> None:
            async with StoreThread(lambda: SqliteStore(path, clock=clock.time)) as store_thread:
                await scene(World(make, store_thread, clock))

        asyncio.run(whole())

    return run
