"""What nodes were asked to count takes no more room than there is, however much is edited."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import HOUR_S
from latencyprobe_operator.directory import asked as asked_
from latencyprobe_operator.directory.asked import Asked
from latencyprobe_operator.reports.store_thread import StoreThread
from tests.latencyprobe_operator.asked_world import BEGAN, World

EDITS, ROOM = 60, 20


@pytest.fixture
def world(make: Any, tmp_path: Path) -> World:
    return World(make, tmp_path / "sli.db")


@pytest.mark.parametrize("save_every", [1, 7, EDITS], ids=["each is saved", "some are", "none is"])
def test_edits_without_end_take_no_more_room_than_there_is(
    world: World, monkeypatch: pytest.MonkeyPatch, save_every: int
) -> None:
    monkeypatch.setattr(asked_, "FORMER", ROOM)
    edited: list[ObjectiveKey] = []

    async def first(asked: Asked, store_thread: StoreThread) -> None:
        for number in range(EDITS):
            world.now += 10
            edited.extend(world.edit(asked, number + 1, "shop"))
            included = [asked.includes("n1", key, world.now) for key in edited]
            assert included == [number - i <= ROOM for i in range(len(edited))], "the latest ones"
            if number % save_every == 0:
                await asked.save()
        await asked.save()
        assert sum(map(len, store_thread.store.asked().values())) <= ROOM + 1

    async def second(asked: Asked, store_thread: StoreThread) -> None:
        world.edit(asked, EDITS + 1, "shop")
        await asked.save()
        assert asked.includes("n1", edited[-1], world.now), "the one before"
        assert sum(map(len, store_thread.store.asked().values())) <= ROOM + 1

    asyncio.run(world.run(first))
    asyncio.run(world.run(second))


def test_who_edits_without_end_takes_no_room_from_others_and_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asked_, "FORMER", ROOM)

    async def scene(asked: Asked, store_thread: StoreThread) -> None:
        others = []
        for number in range(ROOM // 2):
            others += world.edit(asked, number + 1, "bank")
            await asked.save()
        for number in range(EDITS):
            world.edit(asked, number + 1, "shop")
            if number % 9 == 0:
                await asked.save()
        assert all(asked.includes("n1", key, world.now) for key in others)
        (said,) = (record.message for record in caplog.records)
        assert said.startswith("shop: its objectives, or the nodes that they are on, change so often")

    asyncio.run(world.run(scene))


@pytest.mark.parametrize("restarted", [False, True], ids=["as it runs", "with a restart"])
def test_what_all_were_asked_for_until_they_were_suspended_is_known_for_its_late_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, restarted: bool
) -> None:
    monkeypatch.setattr(asked_, "FORMER", ROOM)
    keys: list[ObjectiveKey] = []

    async def measured(asked: Asked, _: StoreThread) -> None:
        keys.extend(world.edit(asked, 5, "shop", each=30))
        await asked.save()

    async def suspended(asked: Asked, store_thread: StoreThread) -> None:
        world.now += 60
        world.edit(asked, 5)
        await asked.save()
        for _ in range(2):
            assert all(asked.includes("n1", key, BEGAN) for key in keys)
            world.now += HOUR_S
            await asked.save()
        assert not caplog.records

        world.edit(asked, 6, "shop")
        world.now += HOUR_S
        await asked.save()
        assert sum(map(len, store_thread.store.asked().values())) == ROOM + 1, "what is asked for is less now"

    async def both(asked: Asked, store_thread: StoreThread) -> None:
        await measured(asked, store_thread)
        await suspended(asked, store_thread)

    for life in (measured, suspended) if restarted else (both,):
        asyncio.run(world.run(life))


def test_store_that_remembers_too_much_is_put_in_order_by_the_first_save(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(asked: Asked, _: StoreThread) -> None:
        for number in range(EDITS):
            world.now += 5
            world.edit(asked, number + 1, "shop")
            await asked.save()

    async def second(asked: Asked, store_thread: StoreThread) -> None:
        world.edit(asked, 1, "shop")
        await asked.save()
        assert asked.known
        assert sum(map(len, store_thread.store.asked().values())) == ROOM + 1

    asyncio.run(world.run(first))
    monkeypatch.setattr(asked_, "FORMER", ROOM)
    asyncio.run(world.run(second))
