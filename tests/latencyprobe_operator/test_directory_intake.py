"""Batches on their way into the store: many at once in one commit, each answered, none kept out by another's."""

import asyncio
from collections.abc import Sequence

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe_operator.directory.intake import MAX_COMMIT_ROWS, MAX_WAITING_ROWS, Intake
from latencyprobe_operator.directory.limits import Refused

ROW = SliRow(*("n", "p", "u", "o", "h", "Server"), minute=0)  # type: ignore[arg-type]


class Disk:
    """Stores slowly: nothing is answered until `free` is set. Nodes named `broken` cannot be stored."""

    def __init__(self, error: Exception | None = None) -> None:
        self.commits: list[list[str]] = []
        self.free = asyncio.Event()
        self.error = error

    async def store(self, batches: Sequence[tuple[str, SliBatch]]) -> list[int]:
        await self.free.wait()
        self.commits.append([node for node, _ in batches])
        if self.error:
            raise self.error
        if any(node == "broken" for node, _ in batches):
            raise OverflowError("a number that nobody foresaw")
        return [batch.sequence + 1 for _, batch in batches]


def batch(sequence: int = 0, rows: int = 1) -> SliBatch:
    return SliBatch("i", sequence, (ROW,) * rows)


async def posted(intake: Intake, *batches: tuple[str, SliBatch]) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.create_task(intake.add(*one)) for one in batches]
    await asyncio.sleep(0)
    return tasks


def test_what_comes_while_one_commit_is_written_goes_into_the_next_together() -> None:
    async def scene() -> None:
        disk = Disk()
        intake = Intake(disk.store, lambda: 5.0)
        first = await posted(intake, ("n0", batch(7)))
        await asyncio.sleep(0)
        others = await posted(intake, *((f"n{i}", batch(i)) for i in range(1, 50)))
        disk.free.set()
        assert [8, *range(2, 51)] == await asyncio.gather(*first, *others)
        assert disk.commits == [["n0"], [f"n{i}" for i in range(1, 50)]]
        assert intake.rows == 0

    asyncio.run(scene())


def test_what_comes_shortly_after_a_busy_commit_goes_in_with_what_came_during_it() -> None:
    async def scene() -> None:
        disk = Disk()
        intake = Intake(disk.store, lambda: 5.0)
        first = await posted(intake, ("n0", batch()))
        await asyncio.sleep(0)
        second = await posted(intake, ("n1", batch()))
        disk.free.set()
        await asyncio.gather(*first)
        third = await posted(intake, ("n2", batch()))
        await asyncio.gather(*second, *third)
        assert disk.commits == [["n0"], ["n1", "n2"]]

    asyncio.run(scene())


def test_a_commit_leaves_the_store_to_others_after_its_share() -> None:
    async def scene() -> None:
        disk = Disk()
        intake = Intake(disk.store, lambda: 5.0)
        tasks = await posted(intake, *((f"n{i}", batch(rows=MAX_COMMIT_ROWS // 2)) for i in range(5)))
        disk.free.set()
        await asyncio.gather(*tasks)
        assert [2, 2, 1] == [len(nodes) for nodes in disk.commits]

    asyncio.run(scene())


def test_a_full_queue_is_said_and_with_it_when_to_come_again() -> None:
    async def scene() -> None:
        disk = Disk()
        intake = Intake(disk.store, lambda: 42.0)
        tasks = await posted(intake, ("n0", batch(rows=MAX_WAITING_ROWS)))
        with pytest.raises(Refused, match="rows wait for the disk") as refused:
            await intake.add("n1", batch())
        assert (refused.value.status, refused.value.retry_after_s) == (503, 42.0)
        disk.free.set()
        await asyncio.gather(*tasks)
        assert 1 == await intake.add("n1", batch()), "there is room again"

    asyncio.run(scene())


def test_a_batch_that_cannot_be_stored_keeps_out_none_that_came_with_it() -> None:
    async def scene() -> None:
        disk = Disk()
        intake = Intake(disk.store, lambda: 5.0)
        tasks = await posted(intake, ("a", batch()), ("broken", batch()), ("b", batch()))
        disk.free.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [1, OverflowError, 1] == [one if isinstance(one, int) else type(one) for one in found]
        assert 1 == await intake.add("c", batch())

    asyncio.run(scene())


def test_a_store_that_is_away_is_told_to_each_and_asked_once() -> None:
    async def scene() -> None:
        disk = Disk(StoreError("the disk is full"))
        intake = Intake(disk.store, lambda: 5.0)
        tasks = await posted(intake, ("a", batch()), ("b", batch()))
        disk.free.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [StoreError, StoreError] == [type(one) for one in found]
        assert disk.commits == [["a", "b"]]
        assert intake.rows == 0

    asyncio.run(scene())


def test_an_agent_that_went_away_meanwhile_harms_nobody() -> None:
    async def scene() -> None:
        disk = Disk()
        intake = Intake(disk.store, lambda: 5.0)
        gone, stays = await posted(intake, ("a", batch()), ("b", batch()))
        gone.cancel()
        disk.free.set()
        assert 1 == await stays
        assert 1 == await intake.add("c", batch())

    asyncio.run(scene())
