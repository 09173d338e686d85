"""Loops go on whatever their turns raise, and report it."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import nullcontext

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster import loops as loops_
from latencyprobe_operator.cluster.loops import Every, Gated, Loops, Seldom, Trigger, in_slices, until_one_ends
from tests.support.waiting import until


class Script:
    """A loop of one turn per outcome: None, or what it raises. After the last it is never due again."""

    name = "script"

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.failed: list[bool] = []
        self.over = asyncio.Event()

    async def due(self, *, failed: bool) -> None:
        self.failed.append(failed)
        if not self.outcomes:
            self.over.set()
            await asyncio.Event().wait()

    async def turn(self) -> None:
        if (error := self.outcomes.pop(0)) is not None:
            raise error


def ran(*outcomes: Exception | None) -> tuple[Loops, list[bool]]:
    """Run a Script to its end; returns the loops and what each `due` was given."""

    async def play() -> tuple[Loops, list[bool]]:
        loops, script = Loops(), Script(*outcomes)
        task = asyncio.create_task(loops.run(script))
        async with asyncio.timeout(10):
            await script.over.wait()
        task.cancel()
        return loops, script.failed

    return asyncio.run(play())


def test_turn_that_raises_what_nobody_expected_is_counted_and_the_next_one_comes() -> None:
    loops, failed = ran(None, RuntimeError("odd"), RuntimeError("odd"), None)
    assert loops.failures == {("script", "RuntimeError"): 2}
    assert failed == [False, False, True, True, False]


def test_unforeseen_error_is_logged_with_its_traceback_and_a_foreseen_one_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran(RuntimeError("odd"), ClusterError("the API server is away"))
    odd, away = caplog.records
    assert (odd.getMessage(), odd.exc_info is not None) == ("script: RuntimeError('odd')", True)
    assert (away.getMessage(), away.exc_info) == ("script: the API server is away", None)
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_every_takes_its_turns_with_pauses_between_them() -> None:
    taken = asyncio.Event()

    async def work() -> None:
        taken.set()

    async def play() -> None:
        task = asyncio.create_task(Loops().run(Every("work", 0.001, work)))
        for _ in range(2):
            taken.clear()
            async with asyncio.timeout(10):
                await taken.wait()
        task.cancel()

    asyncio.run(play())


def test_turns_wait_until_they_are_allowed_too() -> None:
    async def play() -> None:
        allowed, turns = asyncio.Event(), 0

        async def work() -> None:
            nonlocal turns
            turns += 1

        async def wait() -> None:
            await allowed.wait()

        gated = Gated(Every("work", 0, work), wait)
        task = asyncio.create_task(Loops().run(gated))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (gated.name, turns) == ("work", 0)
        allowed.set()
        await until(lambda: turns > 2)
        task.cancel()

    asyncio.run(play())


def test_a_loop_whose_turns_grow_long_has_them_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept_s = [0.0], []

    async def work(took_s: float) -> None:
        now_s[0] += took_s
        if took_s == 0.3:
            raise ClusterError("away")

    async def sleep(pause_s: float) -> None:
        slept_s.append(round(pause_s, 3))

    async def play() -> None:
        monkeypatch.setattr(loops_.asyncio, "sleep", sleep)
        for took_s in (0.1, 0.3, 5.0):
            seldom = Seldom(Every("work", 2.0, lambda took_s=took_s: work(took_s)), 8.0, lambda: now_s[0])
            await Loops().attempt(seldom.name, seldom.turn)
            await seldom.due(failed=False)

    asyncio.run(play())
    assert slept_s == [0.9, 2.0, 2.7, 2.0, 8.0, 2.0], "its own pause comes on top"


def test_what_must_work_is_tried_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        return

    async def play() -> tuple[Loops, int]:
        loops, script = Loops(), Script(RuntimeError("odd"), ClusterError("away"), None)
        await loops.insist("start", script.turn)
        return loops, len(script.outcomes)

    monkeypatch.setattr("latencyprobe_operator.cluster.api.asyncio.sleep", at_once)
    loops, left = asyncio.run(play())
    assert (loops.failures, left) == ({("start", "RuntimeError"): 1, ("start", "ClusterError"): 1}, 0)


def test_cancelling_ends_a_loop_and_is_no_failure() -> None:
    async def play() -> Loops:
        loops, began = Loops(), asyncio.Event()

        async def work() -> None:
            began.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(loops.run(Every("work", 0, work)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return loops

    assert not asyncio.run(play()).failures


@pytest.mark.parametrize(("before", "at_most_s"), [(True, None), (False, 0.01)])
def test_trigger_waits_for_a_change_or_the_time_and_forgets(before: bool, at_most_s: float | None) -> None:
    async def play() -> None:
        trigger = Trigger()
        for _ in range(2 if before else 0):
            trigger.set()
        await trigger.wait(at_most_s)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await trigger.wait()

    asyncio.run(play())


def test_changes_while_a_burst_settles_are_one_turn() -> None:
    async def play() -> None:
        trigger = Trigger()
        trigger.set()
        waiting = asyncio.create_task(trigger.wait(settle_s=0.01))
        await asyncio.sleep(0)
        trigger.set()
        await waiting
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await trigger.wait()

    asyncio.run(play())


async def for_ever(ended: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


@pytest.mark.parametrize("error", [None, ClusterError("the Lease is lost")])
def test_first_part_that_ends_ends_the_others(error: Exception | None) -> None:
    async def play() -> None:
        ended = asyncio.Event()
        with nullcontext() if error is None else pytest.raises(ClusterError, match="the Lease is lost"):
            await until_one_ends(for_ever(ended), Script(error).turn())
        assert ended.is_set()

    asyncio.run(play())


def test_long_work_lets_others_run_and_returns_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops_, "SLICE_S", 0.0)
    seen: list[str] = []

    def work() -> Generator[None, None, str]:
        for _ in range(3):
            seen.append("work")
            yield
        return "found"

    async def other() -> None:
        for _ in range(3):
            seen.append("other")
            await asyncio.sleep(0)

    async def scene() -> None:
        beside = asyncio.create_task(other())
        assert await in_slices(work()) == "found"
        await beside

    asyncio.run(scene())
    assert ["work", "other"] * 3 == seen
