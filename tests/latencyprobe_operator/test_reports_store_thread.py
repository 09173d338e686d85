"""The store's thread: opened and closed once, calls in their order, errors as the store raises them."""

import asyncio
import threading
from pathlib import Path

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.sli import SliBatch
from latencyprobe.store import SqliteStore
from latencyprobe_operator.reports.store_thread import StoreThread


def test_calls_run_one_after_the_other_in_a_thread_that_is_not_the_loops(tmp_path: Path) -> None:
    order: list[int] = []

    async def play() -> set[int]:
        async with StoreThread(lambda: SqliteStore(tmp_path / "sli.db")) as store_thread:

            def call(number: int) -> int:
                order.append(number)
                return threading.get_ident()

            return set(await asyncio.gather(*(store_thread.run(call, number) for number in range(100))))

    threads = asyncio.run(play())
    assert order == list(range(100))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_store_is_closed_at_the_end_and_keeps_what_it_was_given(tmp_path: Path) -> None:
    async def play(sequence: int) -> int:
        async with StoreThread(lambda: SqliteStore(tmp_path / "sli.db")) as store_thread:
            (expected,) = await store_thread.add_batches([("n1", SliBatch("i", sequence, ()))])
            return expected

    assert [asyncio.run(play(0)), asyncio.run(play(5))] == [1, 1]


def test_store_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "sli.db").write_bytes(b"no database " * 100)

    async def play() -> None:
        async with StoreThread(lambda: SqliteStore(tmp_path / "sli.db")):
            pytest.fail("it was opened")

    with pytest.raises(StoreError):
        asyncio.run(play())
