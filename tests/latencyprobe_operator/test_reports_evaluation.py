"""The loop of the evaluation: expected time into the store, reports out of it, figures for the statuses."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from latencyprobe.errors import StoreError
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports import evaluation as evaluation_
from latencyprobe_operator.reports import judging
from latencyprobe_operator.reports.evaluation import Edits, Evaluation
from latencyprobe_operator.reports.reports import Reports
from latencyprobe_operator.reports.store_thread import StoreThread
from latencyprobe_operator.reports.waiting import Waiting
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
        self.reports = Reports(writer, lambda: self.evaluation.reports, self.evaluated)

    async def observe(self, until_s: int) -> None:
        """Let time run, and the evaluation look at the agents each second."""
        while self.clock.now_s < until_s:
            await self.evaluation.observe()
            self.clock.now_s += 1


@pytest.fixture
def play(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        clock = Clock()
        for module in (evaluation_, judging):
            monkeypatch.setattr(module, "time", clock)

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
        await world.reports.turn()
        assert [call[:2] for call in world.cluster.calls] == [("write_report", "shop")]
        assert [(f["objective"], f["state"]) for f in world.evaluation.figures(KEY)] == [("fast", "Met")]
        assert world.evaluation.figures(("shop", "another")) == []
        await world.reports.due(failed=False)

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


def test_an_edit_is_in_the_report_within_moments_and_other_namespaces_wait_for_their_minute(
    play: Callable[..., None], make: Any
) -> None:
    async def scene(world: World) -> None:
        async def written() -> dict[str, list[str]]:
            await world.reports.turn()
            calls, world.cluster.calls = world.cluster.calls, []
            return {call[1]: [result["probe"] for result in call[2]["results"]] for call in calls}

        edited = Trigger()
        edits = Edits(world.evaluation, edited)
        bank = make.probe("till", namespace="bank")
        world.planned.state.put("namespaces", Namespace("bank"))
        world.probes |= {("bank", "till"): bank}
        await world.evaluation.turn()
        assert set(await written()) == {"shop", "bank"}
        await edits.turn()
        assert await written() == {}, "nothing was edited"

        world.probes |= {("shop", "second"): make.probe("second")}
        await edits.turn()
        assert {ns: sorted(probes) for ns, probes in (await written()).items()} == {"shop": ["checkout", "second"]}
        assert world.evaluation.figures(("shop", "second"))

        del world.probes["shop", "second"]
        await edits.turn()
        assert await written() == {"shop": ["checkout"]}
        assert world.evaluation.figures(("shop", "second")) == []

        del world.probes["bank", "till"]
        await edits.turn()
        assert await written() == {}, "its report goes with its last LatencyProbe"
        assert world.evaluation.figures(("bank", "till")) == []

    play(scene)


def test_an_edit_makes_a_turn_due_and_one_that_failed_comes_again(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        monkeypatch.setattr(evaluation_, "SETTLE_S", 0.0)
        edited = Trigger()
        edits = Edits(world.evaluation, edited)
        edited.set()
        async with asyncio.timeout(10):
            await edits.due(failed=False)
            await edits.due(failed=True)

    play(scene)


def fill(world: World, yes: bool = True) -> Awaitable[Any]:
    """Leave the store no page to grow by, or give back what was taken."""
    db = world.store_thread.store._db if yes else world.full
    if yes:
        world.full = db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    limit = f"PRAGMA max_page_count = {pages if yes else 1_000_000}"
    return world.store_thread.run(lambda: db.execute(limit).fetchall())  # no statement stays open


def test_full_store_leaves_no_old_met_and_nothing_is_missing_or_counted_twice_afterwards(
    play: Callable[..., None],
) -> None:
    async def scene(world: World) -> None:
        coverage = Coverage(seen=200, measured_ms=60_000, expected_ms=60_000)
        row = SliRow(*world.objective.key, minute=MINUTE - 60, good=200, coverage=coverage)
        await world.store_thread.run(world.store_thread.store.add, [row])
        await world.evaluation.turn()
        await world.reports.turn()
        await fill(world)
        many = [replace(row, objective=f"o{number}") for number in range(2_000)]
        with pytest.raises(StoreError):
            await world.store_thread.add_batches([("n1", SliBatch("i", 0, tuple(many)))])

        await world.evaluation.due(failed=False)  # at once: the store has told
        await world.observe(200)
        for _ in range(2):
            await world.evaluation.turn()
            await world.reports.turn()
        (told,) = world.evaluation.figures(KEY)
        assert (told["state"], told["events"], told["sli"]) == ("Incomplete", 200, "100")
        assert told["reason"].startswith("the latest counts are missing: ")
        assert told["reason"] == world.evaluation.incomplete
        assert [call[2]["results"][0]["state"] for call in world.cluster.calls] == ["Met", "Incomplete"]

        await fill(world, yes=False)
        await world.store_thread._mend("StoreFull")
        for _ in range(2):
            await world.evaluation.turn()
        stored = await world.store_thread.run(world.store_thread.store.read, world.objective.key, MINUTE, MINUTE + 180)
        assert stored.coverage.expected_ms == 180_000
        assert (world.evaluation.figures(KEY)[0].get("reason", ""), world.evaluation.incomplete) == ("", "")

    play(scene)


def test_store_that_cannot_be_read_either_leaves_results_without_figures(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        await world.evaluation.turn()
        await world.store_thread.run(world.store_thread.file.close)
        world.store_thread._failed(StoreError("/sli.db: disk I/O error: check the disk", "StoreFailed"))
        await world.evaluation.turn()
        (told,) = world.evaluation.figures(KEY)
        why = "the latest counts are missing: /sli.db: disk I/O error: check the disk"
        assert (told["state"], told["events"], told["reason"]) == ("Incomplete", 0, why)

    play(scene)


def test_expected_time_that_waits_for_the_store_is_bounded_and_what_is_forgotten_is_counted(
    play: Callable[..., None],
) -> None:
    async def scene(world: World) -> None:
        world.evaluation.expected.waiting = Waiting(4)  # the objective's key, and three minutes of it
        world.store_thread._failed(StoreError("/sli.db: disk I/O error: check the disk", "StoreFailed"))
        await world.observe(6 * 60 + 20)
        await world.evaluation.turn()
        waiting = world.evaluation.expected.waiting
        assert (len(waiting), waiting.forgotten) == (3, 3)

    play(scene)


def test_expected_time_of_minutes_that_are_not_kept_any_more_is_counted(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        await world.store_thread.run(world.store_thread.store._db.execute, f"UPDATE state SET minutes = {MINUTE}")
        waiting = world.evaluation.expected.waiting
        for minute in (MINUTE - 60, MINUTE):
            waiting.put(minute, {world.objective.key: 60_000})
        await world.evaluation.turn()
        assert (len(waiting), waiting.forgotten) == (0, 1)

    play(scene)


@pytest.mark.parametrize("other", [("bank", "pay"), ("shop", "pay")], ids=["two namespaces", "two slices of one"])
def test_counts_of_agents_are_stored_while_an_evaluation_goes_on(
    play: Callable[..., None], make: Any, monkeypatch: pytest.MonkeyPatch, other: tuple[str, str]
) -> None:
    order: list[str] = []
    real = evaluation_.documents.judged
    monkeypatch.setattr(evaluation_.documents, "SLICE", 1)

    async def scene(world: World) -> None:
        others = []

        def judged(store: SqliteStore, owners: list[Any], *rest: Any) -> Any:
            order.extend(owner.name for owner in owners)
            if len(order) == 1:  # an agent's counts come meanwhile
                others.append(asyncio.run_coroutine_threadsafe(world.store_thread.run(order.append, "counts"), loop))
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # they wait for the store's thread
            return real(store, owners, *rest)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(evaluation_.documents, "judged", judged)
        world.probes = {KEY: world.planned.probe, other: make.probe(other[1], namespace=other[0])}
        await world.evaluation.turn()
        assert ["checkout", "counts", "pay"] == order
        assert [1, 1] == [len(world.evaluation.figures(key)) for key in (KEY, other)]

    play(scene)


def test_why_a_latencyprobe_is_not_measured_is_told_in_its_results_while_it_is_not(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        told = []
        for why in ("Suspended: " + 300 * "x", ""):
            world.why_not = {KEY: why, ("shop", "other"): "NoMatchingPods: "}
            await world.evaluation.turn()
            (figures,) = world.evaluation.figures(KEY)
            told.append(figures.get("notMeasured"))
        assert told == [("Suspended: " + 300 * "x")[:256], None]

    play(scene)
