"""The loop of the evaluation while its store fails, is full, or cannot take what was expected."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from latencyprobe.errors import StoreError
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe_operator.reports.waiting import Waiting
from tests.latencyprobe_operator.evaluation_world import KEY, MINUTE, World, player


@pytest.fixture
def play(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return player(make, tmp_path / "sli.db", monkeypatch)


def test_store_that_fails_leaves_the_figures_of_the_last_evaluation(play: Callable[..., None]) -> None:
    async def scene(world: World) -> None:
        await world.evaluation.turn()
        figures = world.evaluation.figures(KEY)
        await world.store_thread.run(world.store_thread.store.close)
        with pytest.raises(StoreError):
            await world.evaluation.turn()
        assert world.evaluation.figures(KEY) == figures

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
