"""Writes that may fail, and namespaces that take none."""

import asyncio
from typing import Any

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.writes import Writes, alive


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
