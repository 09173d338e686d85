"""The loop of the evaluation: expected time into the store, reports out of it, figures for the statuses."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.errors import StoreError
from latencyprobe.report import room
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.reports import evaluation as evaluation_
from latencyprobe_operator.reports.evaluation import Edits
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.registry import Entry
from latencyprobe_operator.status.status import status
from tests.latencyprobe_operator.evaluation_world import KEY, MINUTE, World, player


@pytest.fixture
def play(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return player(make, tmp_path / "sli.db", monkeypatch)


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


def test_the_last_minutes_are_those_whose_counts_are_here(play: Callable[..., None]) -> None:
    """An edit is evaluated whenever it comes, and agents of a large cluster hand in what is a minute old."""

    async def scene(world: World) -> None:
        key = world.objective.key
        rows = [SliRow(*key, minute, good=good, histogram={1: good}) for minute, good in ((-120, 600), (-60, 60))]
        rows = [msgspec.structs.replace(row, minute=MINUTE + row.minute) for row in rows]
        await world.store_thread.run(world.store_thread.store.add, rows)
        told = []
        for second in (3, 15):
            world.clock.now_s = second
            await world.evaluation.turn()
            told += [figures["now"]["rate"] for figures in world.evaluation.figures(KEY)]
        assert told == ["10", "5.5"]

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


def test_a_report_has_no_old_results_once_all_latencyprobes_of_its_namespace_are_refused(
    play: Callable[..., None], make: Any
) -> None:
    async def scene(world: World) -> None:
        async def written() -> list[Any]:
            await world.reports.turn()
            calls, world.cluster.calls = world.cluster.calls, []
            return [(len(call[2]["results"]), call[2]["metadata"]["ownerReferences"][0]["uid"]) for call in calls]

        edits = Edits(world.evaluation, Trigger())
        await world.evaluation.turn()
        world.refused = {("shop", "other"): "u9"}
        assert await written() == [(1, "uid-shop-checkout")], "beside one that is not"
        world.probes, world.refused = {}, {KEY: "uid-shop-checkout"}
        await edits.turn()
        assert await written() == [(0, "uid-shop-checkout")]
        await world.evaluation.turn()
        assert await written() == [], "nothing is new"
        world.probes, world.refused = {KEY: world.planned.probe}, {}
        await edits.turn()
        assert await written() == [(1, "uid-shop-checkout")]

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


def test_a_status_has_the_objectives_for_which_the_report_has_no_room(
    play: Callable[..., None], make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        names = ("fast", "faster", "broken", "quiet")
        planned = make.planned(make.pod("cart-1"), name="crowded", objectives=[
            {"name": name, "target": "cart", "threshold": "25ms", "goal": "99"} for name in names
        ])  # fmt: skip
        world.probes |= {("shop", "crowded"): planned.probe}
        coverage = Coverage(seen=200, measured_ms=60_000, expected_ms=60_000)
        rows = [
            SliRow(*one.key, minute=MINUTE - 60, good=200 - bad, bad=bad, dominant={"process": bad}, coverage=coverage)
            for one, bad in zip(objectives(planned.probe), (1, 50, 0), strict=False)
        ]
        rows = [msgspec.structs.replace(row, histogram={1: 200}) for row in rows]
        await world.store_thread.run(world.store_thread.store.add, rows)

        async def told() -> tuple[Any, dict[str, int]]:
            before = dict(world.evaluation.counts)
            await world.evaluation.turn()
            found = status(
                Entry(planned.probe.uid, 1, probe=planned.probe),
                planned.resolved,
                states={},
                agents=planned.agents,
                figures=world.evaluation.figures(("shop", "crowded")),
                previous=None,
                now="2026-01-01T00:00:00Z",
                placement=Placement(planned.state, "lp-agents", ()),
            )
            return found, {name: count - before.get(name, 0) for name, count in world.evaluation.counts.items()}

        real = SqliteStore.read

        def read(store: SqliteStore, key: Any, *window: int, **more: bool) -> SliRow:
            if key.objective == "broken":
                raise StoreError("its counts are broken")
            return real(store, key, *window, **more)

        monkeypatch.setattr(SqliteStore, "read", read)
        whole = await told()
        monkeypatch.setattr(room, "MAX_RESULTS", 0)
        without = await told()
        assert world.evaluation.reports["shop"]["omitted"] == 5
        assert without == whole
        assert whole[1] == {"ok": 4, "failed": 1}
        assert [one["name"] for one in whole[0]["objectives"]] == ["faster", "broken", "quiet", "fast"]
        assert ("Violated", "process") == (whole[0]["slo"], whole[0]["burnedBy"])
        assert "p99" in whole[0]

    play(scene)
