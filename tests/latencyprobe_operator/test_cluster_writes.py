"""Writes that may fail, and namespaces that take none."""

import asyncio
from typing import Any

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.writes import AT_ONCE, Writes, alive


async def write(error: Exception | None = None) -> None:
    if error is not None:
        raise error


def test_writes_are_counted_by_kind_and_result_and_those_that_fail_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> list[bool]:
        outcomes = (write(), write(ClusterError("PATCH /x: 403 forbidden")), write())
        return [await writes.attempt("status", call) for call in outcomes]

    writes = Writes()
    assert asyncio.run(play()) == [True, False, True]
    assert writes.counts == {("status", "ok"): 2, ("status", "error"): 1}
    assert [record.getMessage() for record in caplog.records] == ["PATCH /x: 403 forbidden"]


def test_nothing_is_written_unless_nobody_else_can_be_writing() -> None:
    written: list[str] = []

    async def one(name: str) -> None:
        written.append(name)

    async def play() -> list[bool]:
        outcomes = []
        for now_left_s in (3.0, 0.0, -1.0, 3.0):
            left_s[0] = now_left_s
            outcomes.append(await writes.attempt("label", one(f"{now_left_s}")))
        return outcomes

    left_s = [0.0]
    writes = Writes(lambda: left_s[0])
    assert asyncio.run(play()) == [True, False, False, True]
    assert (written, writes.counts) == (["3.0", "3.0"], {("label", "ok"): 2, ("label", "held_back"): 2})


def test_write_is_waited_for_no_longer_than_nobody_else_writes(caplog: pytest.LogCaptureFixture) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def play() -> bool:
        return await writes.attempt("report", never())

    writes = Writes(lambda: 0.01)
    assert not asyncio.run(play())
    assert writes.counts == {("report", "error"): 1}
    assert "report: no answer while the Lease was certainly ours" in caplog.text


def test_namespace_is_alive_until_it_is_terminating(make: Any) -> None:
    state = make.state(Namespace("leaving", terminating=True))
    assert [alive(state, name) for name in ("shop", "leaving", "unknown")] == [True, False, False]


class Slow:
    """An API server that answers when it is let: `begun` in order, `most` at once."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.most = self.under_way = 0
        self.let = asyncio.Event()

    async def call(self, what: Any) -> None:
        self.begun.append(what)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.let.wait()
        self.under_way -= 1


def test_some_are_written_at_once_of_whatever_kind_and_in_their_order() -> None:
    async def play() -> None:
        writes, server = Writes(), Slow()

        async def one(number: int) -> None:
            assert await writes.attempt("status", server.call(number))

        async with asyncio.TaskGroup() as group:
            group.create_task(writes.each(range(100), one))
            await asyncio.sleep(0)
            label = group.create_task(writes.attempt("label", server.call("label")))
            for _ in range(3):
                await asyncio.sleep(0)
            assert server.begun == [*range(AT_ONCE)]
            server.let.set()
        assert label.result()
        assert server.most == AT_ONCE
        assert server.begun.index("label") <= 2 * AT_ONCE, "it did not wait for all"
        assert [one for one in server.begun if one != "label"] == [*range(100)]
        assert writes.counts == {("status", "ok"): 100, ("label", "ok"): 1}

    asyncio.run(play())


def test_what_waits_while_the_lease_is_lost_is_not_written() -> None:
    async def play() -> list[bool]:
        server, left_s = Slow(), [10.0]
        writes = Writes(lambda: left_s[0])
        tasks = [asyncio.create_task(writes.attempt("report", server.call(n))) for n in range(AT_ONCE + 3)]
        await asyncio.sleep(0)
        left_s[0] = 0.0
        server.let.set()
        done = [await task for task in tasks]
        assert server.begun == [*range(AT_ONCE)]
        return done

    assert asyncio.run(play()) == [True] * AT_ONCE + [False] * 3


def test_what_one_raises_is_raised_once_all_others_are_written() -> None:
    written: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(0)
        if number % 2:
            raise ValueError(str(number))
        written.append(number)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(Writes().each(range(50), one))
    assert sorted(written) == [*range(0, 50, 2)]


def test_write_that_is_cancelled_while_it_waits_never_begins() -> None:
    async def play() -> None:
        writes, server = Writes(), Slow()
        tasks = [asyncio.create_task(writes.attempt("report", server.call(n))) for n in range(AT_ONCE + 1)]
        await asyncio.sleep(0)
        tasks[-1].cancel()
        server.let.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert server.begun == [*range(AT_ONCE)]

    asyncio.run(play())
