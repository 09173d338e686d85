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


def test_namespace_is_alive_until_it_is_terminating(make: Any) -> None:
    state = make.state(Namespace("leaving", terminating=True))
    assert [alive(state, name) for name in ("shop", "leaving", "unknown")] == [True, False, False]
