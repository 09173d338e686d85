"""What nodes were asked to count: remembered over restarts, forgotten when nobody can have counts of it any more."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.slo.objective import objectives
from latencyprobe.slo.windows import DAY_S, HOUR_S
from latencyprobe.store import SqliteStore
from latencyprobe_operator.directory.asked import Asked
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports.store_thread import StoreThread

BEGAN = 1_000 * DAY_S


class World:
    """The objective of a LatencyProbe on node n1; `plan(True)` asks for it, `plan(False)` no more."""

    def __init__(self, make: Any, path: Path) -> None:
        self.now, self.path, self.state = BEGAN, path, make.state(make.pod("cart-1"))
        self.planner, self.probe = Planner(1), make.probe()
        (self.objective,) = objectives(self.probe)
        self.plan(True)

    def plan(self, wanted: bool) -> None:
        probes = {("shop", "checkout"): self.probe} if wanted else {}
        self.planner.update(probes, self.state, self.state.take_changes())

    async def run(self, scene: Callable[[Asked, StoreThread], Awaitable[None]]) -> None:
        """One life of an operator."""
        clock = lambda: self.now  # noqa: E731 - read by both
        async with StoreThread(lambda: SqliteStore(self.path, clock=clock, steady=clock)) as store_thread:
            await scene(Asked(store_thread, clock), store_thread)

    def includes(self, asked: Asked, minute: int, node: str = "n1") -> bool:
        return asked.includes(node, self.objective.key, minute)


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
        assert {world.objective.key: BEGAN} == store_thread.store.asked()["n1"]

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
