"""What nodes were asked to count: remembered over restarts, forgotten when nobody can have counts of it any more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import DAY_S, HOUR_S
from latencyprobe_operator.directory.asked import Asked
from latencyprobe_operator.reports.store_thread import StoreThread
from tests.latencyprobe_operator.asked_world import BEGAN, World


@pytest.fixture
def world(make: Any, tmp_path: Path) -> World:
    return World(make, tmp_path / "sli.db")


def test_what_was_asked_for_outlives_the_operator(world: World) -> None:
    async def first(asked: Asked, _: StoreThread) -> None:
        asked.planned(world.planner.plan_of("n1"))
        await asked.save()

    async def second(asked: Asked, _: StoreThread) -> None:
        world.now += 6 * HOUR_S
        asked.planned(world.planner.plan_of("n1"))
        assert not world.includes(asked, BEGAN + HOUR_S)
        await asked.save()
        assert world.includes(asked, BEGAN + HOUR_S)
        assert not world.includes(asked, BEGAN - HOUR_S), "before it was asked"
        assert not world.includes(asked, BEGAN + HOUR_S, "n2")

    asyncio.run(world.run(first))
    asyncio.run(world.run(second))


def test_what_was_asked_for_while_the_store_was_away_outlives_the_operator(world: World) -> None:
    """Its counts wait in the agents. Nobody was asked before the store last took note of somebody, nor by a later plan
    than the first, without its being known."""
    since, keys = BEGAN + HOUR_S, []

    async def first(asked: Asked, store_thread: StoreThread) -> None:
        world.edit(asked, 5, "bank")
        await asked.save()
        world.now = since
        world.edit(asked, 6, "bank")
        await asked.save()
        store_thread._failed(StoreError("the disk is full", "StoreFull"))
        world.now += HOUR_S
        keys.extend(world.edit(asked, 6, "bank", "shop"))
        with pytest.raises(StoreError):
            await asked.save()

    async def second(asked: Asked, _: StoreThread) -> None:
        world.now += 2 * HOUR_S
        world.edit(asked, 6, "bank", "shop")
        world.now += 60
        later = world.edit(asked, 7, "bank", "shop")
        world.edit(asked, 6, "bank", "shop")
        assert [asked.includes("n1", key, since + HOUR_S) for key in keys + later] == [False] * 4
        await asked.save()
        assert [asked.includes("n1", key, since + HOUR_S) for key in keys + later] == [True, True, False, False]
        assert not any(asked.includes(node, keys[1], since - 600) for node in ("n1", "n2"))
        assert not asked.includes("n2", keys[1], since + HOUR_S)

    async def third(asked: Asked, _: StoreThread) -> None:
        world.now += HOUR_S
        world.edit(asked, 6, "bank", "shop")
        await asked.save()
        assert asked.includes("n1", keys[1], since + HOUR_S)

    for life in (first, second, third):
        asyncio.run(world.run(life))


def test_first_plan_reaches_no_further_back_than_agents_keep_counts(world: World) -> None:
    async def first(asked: Asked, _: StoreThread) -> None:
        world.edit(asked, 5, "bank")
        await asked.save()

    async def second(asked: Asked, _: StoreThread) -> None:
        world.now += 10 * DAY_S
        (key,) = world.edit(asked, 5, "shop")
        await asked.save()
        assert [asked.includes("n1", key, world.now - hours * HOUR_S) for hours in (23, 25)] == [True, False]

    for life in (first, second):
        asyncio.run(world.run(life))


@pytest.mark.parametrize("restarted", [False, True], ids=["as it runs", "with a restart"])
def test_what_was_asked_for_while_the_clock_was_ahead_is_taken_once_it_is_right(
    world: World, *, restarted: bool
) -> None:
    """Both what is asked for and what was until then."""
    keys: list[ObjectiveKey] = []

    async def ahead(asked: Asked, _: StoreThread) -> None:
        for threshold_ms in (5, 6):
            world.now += 3 * DAY_S
            keys.extend(world.edit(asked, threshold_ms, "bank"))
            await asked.save()

    async def right(asked: Asked, _: StoreThread) -> None:
        world.now = BEGAN + HOUR_S
        world.edit(asked, 6, "bank")
        for _hour in range(2):
            await asked.save()
            assert [asked.includes("n1", key, world.now - 60) for key in keys] == [True, True]
            assert not any(asked.includes("n1", key, BEGAN) for key in keys)
            world.now += HOUR_S

    async def both(asked: Asked, store_thread: StoreThread) -> None:
        await ahead(asked, store_thread)
        await right(asked, store_thread)

    for life in (ahead, right) if restarted else (both,):
        asyncio.run(world.run(life))


def test_what_is_not_asked_for_any_more_is_forgotten_after_two_days(world: World) -> None:
    async def scene(asked: Asked, store_thread: StoreThread) -> None:
        asked.planned(world.planner.plan_of("n1"))
        await asked.save()
        world.plan(False)
        asked.planned(world.planner.plan_of("n1"))
        for hours, known in ((1, True), (47, True), (50, False)):
            world.now = BEGAN + hours * HOUR_S
            await store_thread.run(store_thread.store.compact, world.now)
            await asked.save()
            assert known == world.includes(asked, BEGAN), hours

    asyncio.run(world.run(scene))


def test_what_is_asked_for_all_the_time_is_known_however_long(world: World) -> None:
    async def scene(asked: Asked, store_thread: StoreThread) -> None:
        asked.planned(world.planner.plan_of("n1"))
        for _ in range(5):
            await asked.save()
            await store_thread.run(store_thread.store.compact, world.now)
            world.now += DAY_S
        assert world.includes(asked, BEGAN)

    asyncio.run(world.run(scene))


def test_what_could_not_be_stored_is_stored_by_the_next_call(world: World) -> None:
    async def scene(asked: Asked, store_thread: StoreThread) -> None:
        asked.planned(world.planner.plan_of("n1"))
        store_thread._failed(StoreError("the disk is full", "StoreFull"))
        with pytest.raises(StoreError):
            await asked.save()
        assert not asked.known
        await store_thread._mend("StoreFull")
        await asked.save()
        assert asked.known
        assert {world.objective.key: (BEGAN, BEGAN)} == store_thread.store.asked()["n1"]

    asyncio.run(world.run(scene))


def test_store_that_was_begun_anew_takes_nothing_from_what_is_known(world: World) -> None:
    """A damaged one was moved aside: counts of before then are still on their way."""

    async def scene(asked: Asked, store_thread: StoreThread) -> None:
        asked.planned(world.planner.plan_of("n1"))
        await asked.save()
        await store_thread.run(store_thread.store._db.execute, "DELETE FROM asked")
        for _ in range(2):
            world.now += 3 * HOUR_S
            await asked.save()
            assert world.includes(asked, BEGAN)
            assert not world.includes(asked, BEGAN - HOUR_S)

    asyncio.run(world.run(scene))
