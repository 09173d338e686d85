"""The store's thread: calls in their order, errors as the store raises them, and a store that is mended by itself."""

import asyncio
import os
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from latencyprobe.errors import StoreError
from latencyprobe.plan import Role
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.api import Backoff
from latencyprobe_operator.reports import store_thread as store_thread_
from latencyprobe_operator.reports.store_thread import StoreThread
from tests.support.volumes import read_only, volume
from tests.support.waiting import until


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


def test_counts_that_come_while_the_operator_ends_are_refused_for_now(tmp_path: Path) -> None:
    async def play() -> None:
        async with StoreThread(lambda: SqliteStore(tmp_path / "sli.db")) as store_thread:
            pass
        with pytest.raises(StoreError, match="the operator ends") as refusal:
            await store_thread.add_batches([("n1", SliBatch("i", 0, ()))])
        assert refusal.value.reason, "the directory does not log it"

    asyncio.run(play())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Retries without delays; returns what they were for."""
    retries: list[str] = []

    async def wait(_: Backoff, error: Exception) -> None:
        retries.append(str(error))
        await asyncio.sleep(0.01)

    monkeypatch.setattr(Backoff, "wait", wait)
    return retries


class Kept:
    """A store thread that mends its store, at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = StoreThread(
            partial(SqliteStore, path, move_damaged=True), partial(SqliteStore, path, readonly=True)
        )

    async def __aenter__(self) -> StoreThread:
        await self.thread.__aenter__()
        self._keeping = asyncio.create_task(self.thread.keep())
        return self.thread

    async def __aexit__(self, *error: object) -> None:
        self._keeping.cancel()
        await self.thread.__aexit__(*error)


def batch(sequence: int, *rows: SliRow) -> list[tuple[str, SliBatch]]:
    return [("n1", SliBatch("i", sequence, rows))]


MINUTE = int(time.time()) // 60 * 60
KEY = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)
ROW = SliRow(*KEY, minute=MINUTE, good=1)


def stored(thread: StoreThread) -> int:
    store = thread.readable
    assert store is not None
    if thread.problem is None:
        store.settle()
    return store.events(KEY, MINUTE - 60, MINUTE + 60).good


def test_store_that_cannot_be_opened_is_told_and_tried_again_until_it_can(
    tmp_path: Path, quick: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sli.db"
    path.write_bytes(b"no database " * 100)

    async def play() -> None:
        async with Kept(path) as thread:
            await thread.tried()
            assert thread.problem is not None
            assert (thread.problem.reason, thread.readable) == ("StoreFailed", None)
            with pytest.raises(StoreError, match="not a store: give another path"):
                await thread.add_batches(batch(0))
            await until(lambda: len(quick) > 5)
            path.unlink()
            await thread.works()
            assert await thread.add_batches(batch(0)) == [1]
            await thread.changed.wait()

    asyncio.run(play())
    said = [record.getMessage() for record in caplog.records if "not a store" in record.getMessage()]
    assert len(said) == 1, "what is tried again and again is told once"


def test_other_files_are_never_moved(tmp_path: Path, quick: list[str]) -> None:
    path = tmp_path / "sli.db"
    sqlite3.connect(path).execute("CREATE TABLE addresses (name TEXT)").connection.close()
    content = path.read_bytes()

    async def play() -> None:
        async with Kept(path) as thread:
            await until(lambda: len(quick) > 3)
            assert "another program's database" in str(thread.problem)
        assert path.read_bytes() == content

    asyncio.run(play())


def test_file_that_is_damaged_while_it_is_open_is_replaced_and_counts_begin_anew(
    tmp_path: Path, quick: list[str]
) -> None:
    path = tmp_path / "sli.db"

    async def play() -> None:
        async with Kept(path) as thread:
            rows = [replace(ROW, objective=f"o{number}") for number in range(2_000)]
            assert await thread.add_batches(batch(0, *rows)) == [1]
            await thread.run(thread.store._db.execute, "PRAGMA wal_checkpoint(TRUNCATE)")
            await thread.run(thread.store._db.execute, "PRAGMA cache_size = 1")
            content = path.read_bytes()
            path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
            with pytest.raises(StoreError, match="malformed") as damaged:
                await thread.run(all_of_it, thread.store)
            assert damaged.value.reason == "StoreDamaged"
            await thread.works()
            assert [one.path.exists() for one in thread.file.moved] == [True]
            assert await thread.add_batches(batch(7, ROW)) == [8]
            assert stored(thread) == 1
            assert thread.failures == {"StoreDamaged": 1}

    asyncio.run(play())


def all_of_it(store: SqliteStore) -> None:
    for number in range(2_000):
        store.read(KEY._replace(objective=f"o{number}"), MINUTE, MINUTE + 60)


def test_full_disk_keeps_the_old_counts_readable_and_takes_each_batch_once_when_there_is_room(
    tmp_path: Path, quick: list[str]
) -> None:
    path = tmp_path / "sli.db"

    async def play() -> None:
        async with Kept(path) as thread:
            assert (await thread.add_batches(batch(0, ROW)), stored(thread)) == ([1], 1)
            db = thread.store._db
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages}")
            thread.store.try_write = partial(thread.store.add, many())  # type: ignore[method-assign]  # it needs room
            more = batch(1, *many())
            with pytest.raises(StoreError, match="free some space"):
                await thread.add_batches(more)
            await until(lambda: len(quick) > 3)
            with pytest.raises(StoreError, match="free some space") as still:
                await thread.add_batches(more)
            assert (still.value.reason, stored(thread)) == ("StoreFull", 1)
            await thread.run(db.execute, "PRAGMA max_page_count = 1000000")
            await thread.works()
            assert await thread.add_batches(more) == [2]
            assert await thread.add_batches(more) == [2], "sent again it changes nothing"

    def many() -> list[SliRow]:
        return [replace(ROW, objective=f"o{number}") for number in range(3_000)]

    asyncio.run(play())


def test_what_is_wrong_with_one_call_is_no_problem_of_the_store(tmp_path: Path) -> None:
    async def play() -> None:
        async with Kept(tmp_path / "sli.db") as thread:
            with pytest.raises(msgspec.ValidationError):
                await thread.add_batches(batch(0, replace(ROW, good=None)))
            assert thread.problem is None

    asyncio.run(play())


def test_store_that_takes_for_ever_to_open_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named pipe: reading it waits until somebody writes, as a volume of the network may."""
    path = tmp_path / "sli.db"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # an end of its own, which nobody has to wait for
    monkeypatch.setattr(store_thread_, "OPENING_S", 0.01)

    async def play() -> None:
        thread = StoreThread(partial(SqliteStore, path))
        opening = asyncio.create_task(thread.__aenter__())
        await thread.tried()
        with pytest.raises(StoreError, match="still being opened"):
            await thread.add_batches(batch(0))
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        os.write(pipe, b"no database " * 100)
        os.close(pipe)  # lets the thread go

    asyncio.run(play())


@pytest.mark.root
def test_read_only_volume_is_read_and_written_again_when_it_can_be(tmp_path: Path, quick: list[str]) -> None:
    with volume(tmp_path / "volume", "2m") as folder:
        path = folder / "sli.db"
        with SqliteStore(path) as store:
            store.add([ROW])
        read_only(folder)

        async def play() -> None:
            async with Kept(path) as thread:
                assert "make its volume writable" in str(thread.problem)
                await until(lambda: len(quick) > 2)
                assert await thread.run(stored, thread) == 1
                read_only(folder, yes=False)
                await thread.works()
                assert await thread.add_batches(batch(0, ROW)) == [1]
                assert stored(thread) == 2

        asyncio.run(play())
