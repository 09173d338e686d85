"""The loop of the evaluation: expected time into the store, reports out of it, figures for the statuses."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports import evaluation as evaluation_
from latencyprobe_operator.reports.evaluation import Evaluation
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

    def __init__(self, make: Any, store_thread: StoreThread, clock: Clock) -> None:
        self.clock, self.store_thread, self.cluster, self.evaluated = clock, store_thread, FakeCluster(), Trigger()
        self.planned = make.planned(make.pod("cart-1"), clients={"scope": "None"})
        self.planned.report("n1", 0)
        (self.objective,) = objectives(self.planned.probe)
        self.probes = {KEY: self.planned.probe}
        self.evaluation = Evaluation(
            self.planned.planner,
            self.planned.agents,
            store_thread,
            ReportWriter(self.cluster, Writes(), self.planned.state),
            probes=lambda: self.probes,
            upload_s=lambda: 5.0,
            evaluated=self.evaluated,
        )

    async def observe(self, until_s: int) -> None:
        """Let time run, and the evaluation look at the agents each second."""
        while self.clock.now_s < until_s:
            await self.evaluation.observe()
            self.clock.now_s += 1


@pytest.fixture
def play(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        clock = Clock()
        monkeypatch.setattr(evaluation_, "time", clock)

        async def whole() -> None:
            async with StoreThread(lambda: SqliteStore(tmp_path / "sli.db", clock=clock.time)) as store_thread:
                await scene(World(make, store_thread, clock))

        asyncio.run(whole())

    return run


def test_report_and_figures_follow_the_stored_counts(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        coverage = Coverage(seen=200, measured_ms=60_000, expected_ms=60_000)
        row = SliRow(*world.objective.key, minute=MINUTE - 60, good=200, coverage=coverage)
        await world.store_thread.run(world.store_thread.store.add, [row])
        await world.evaluation.turn()
        assert [call[:2] for call in world.cluster.calls] == [("write_report", "shop")]
        assert [(f["objective"], f["state"]) for f in world.evaluation.figures(KEY)] == [("fast", "Met")]
        assert world.evaluation.figures(("shop", "another")) == []
        await world.evaluated.wait()

    play(scene)


def test_time_that_agents_should_have_measured_is_stored_when_its_minute_is_complete(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        async def expected_ms() -> int:
            row = await world.store_thread.run(world.store_thread.store.read, world.objective.key, MINUTE, MINUTE + 60)
            return row.coverage.expected_ms

        await world.observe(70)
        await world.evaluation.turn()
        assert await expected_ms() == 0, "counts of the minute may still come"
        await world.observe(80)
        await world.evaluation.turn()
        assert await expected_ms() == 60_000

    play(scene)


def test_nodes_that_do_not_measure_are_named_in_the_report(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        world.clock.now_s = 1000
        await world.evaluation.turn()
        (figures,) = world.evaluation.figures(KEY)
        assert figures["coverage"]["nodesMissing"] == 1

    play(scene)


def test_store_that_fails_leaves_the_figures_of_the_last_evaluation(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        await world.evaluation.turn()
        figures = world.evaluation.figures(KEY)
        await world.store_thread.run(world.store_thread.store.close)
        with pytest.raises(StoreError):
            await world.evaluation.turn()
        assert world.evaluation.figures(KEY) == figures

    play(scene)


def test_counts_of_agents_are_stored_between_the_reports_of_two_namespaces(
    play: Callable[..., None], make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = evaluation_.documents.evaluate

    async def scene(world: World) -> None:
        others = []

        def evaluate(store: SqliteStore, owners: list[Any], *rest: Any) -> Any:
            order.append(owners[0].namespace)
            if len(order) == 1:  # an agent's counts come meanwhile
                others.append(asyncio.run_coroutine_threadsafe(world.store_thread.run(order.append, "counts"), loop))
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # they wait for the store's thread
            return real(store, owners, *rest)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(evaluation_.documents, "evaluate", evaluate)
        world.probes = {KEY: world.planned.probe, ("bank", "pay"): make.probe("pay", namespace="bank")}
        await world.evaluation.turn()
        assert ["shop", "counts", "bank"] == order

    play(scene)
