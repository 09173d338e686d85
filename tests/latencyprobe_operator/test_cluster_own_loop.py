"""A loop of its own: it goes on while ours stands still, ends with us, and tells how it failed."""

import asyncio
import threading
import time

import pytest

from latencyprobe_operator.cluster.own_loop import OwnLoop


def test_it_goes_on_while_our_loop_is_blocked_and_is_cancelled_at_the_end() -> None:
    turned, tidied = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(0.001)
                turned.set()
        finally:
            tidied.set()

    async def play() -> None:
        async with OwnLoop("other", work):
            turned.clear()
            assert turned.wait(10), "it turned while we waited without giving way"
            assert not tidied.is_set()

    asyncio.run(play())
    assert tidied.is_set()


def test_what_ends_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise RuntimeError("odd")

    async def play() -> None:
        async with OwnLoop("other", work):
            pass

    asyncio.run(play())
    assert [record.getMessage() for record in caplog.records] == ["the thread other has ended"]


def test_one_that_does_not_end_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("latencyprobe_operator.cluster.own_loop.END_S", 0.05)
    go_on = threading.Event()

    async def work() -> None:
        while not go_on.is_set():
            time.sleep(0.005)  # noqa: ASYNC251 - it hangs

    async def play() -> None:
        async with OwnLoop("other", work):
            pass
        go_on.set()

    asyncio.run(play())
    assert [record.getMessage() for record in caplog.records] == ["the thread other does not end"]
