"""app.py with a store that cannot be used: all else goes on, it is told, and mends itself."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from latencyprobe import parsing
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore, damage
from tests.latencyprobe_operator.conftest import agent_status
from tests.latencyprobe_operator.operator_process import (
    CART,
    ApiServer,
    conditions,
    figure,
    operator,
    plan,
    post,
    ready,
    taken,
    trusting,
)
from tests.support.volumes import fill, make_room, volume

pytestmark = pytest.mark.slow


def test_store_that_takes_for_ever_to_open_costs_neither_the_lease_nor_plans(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    """A named pipe in its place: opening it to read waits until somebody writes."""

    async def scene() -> None:
        api = ApiServer(make.document())
        os.mkfifo(tmp_path / "sli.db")
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            renewed = api.renewals
            assert await plan(session, url)
            assert (await post(session, url, 0))[0] == 503
            await make.until(lambda: api.renewals > renewed + 2, timeout_s=60)
            let_go(tmp_path / "sli.db")
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0

    asyncio.run(scene())


def let_go(pipe: Path) -> None:
    """Let whoever reads a pipe see its end, and find nothing there the next time; where nobody does, nobody is waited
    for."""
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    pipe.unlink()
    os.close(end)


def test_foreign_file_in_the_stores_place_is_told_and_left_alone_and_all_else_goes_on(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = ApiServer(make.document())
        foreign = b"no database " * 100
        (tmp_path / "sli.db").write_bytes(foreign)
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            assert await plan(session, url)
            assert (await post(session, url, 0))[0] == 503
            await make.until(
                lambda: "StoreFailed" in conditions(api) and api.reports, seen=lambda: api.statuses, timeout_s=60
            )
            assert "not a store: give another path" in conditions(api)["StoreFailed"]["message"]
            assert [r["state"] for r in api.reports[-1]["results"]] == ["Incomplete"]
            assert (tmp_path / "sli.db").read_bytes() == foreign
            (tmp_path / "sli.db").unlink()
            await make.until(lambda: taken(session, url), timeout_s=60, poll_s=0.2)
            await make.until(lambda: "StoreFailed" not in conditions(api), timeout_s=60)
            assert process.returncode is None

    asyncio.run(scene())


def test_damaged_store_is_moved_aside_and_counts_begin_anew(make: Any, tmp_path: Path, tls_dir: Path) -> None:
    document = make.document()
    (objective,) = objectives(parsing.parse(document))
    minute = int(time.time()) // 60 * 60 - 60
    with SqliteStore(tmp_path / "sli.db") as store:
        store.add(SliRow(*objective.key, minute - 60 * i, 200) for i in range(500))
    content = bytearray((tmp_path / "sli.db").read_bytes())
    content[8192:16384] = b"\xff" * 8192
    (tmp_path / "sli.db").write_bytes(content)

    async def scene() -> None:
        api = ApiServer(document)
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            await make.until(lambda: "StoreFailed" in conditions(api), seen=lambda: api.statuses, timeout_s=60)
            told = conditions(api)["StoreFailed"]
            (moved,) = damage.moved(tmp_path / "sli.db")
            assert (told["reason"], moved.path.name in told["message"]) == ("StoreDamaged", True)
            assert moved.path.read_bytes() == content
            assert (await post(session, url, 0))[0] == 200
            assert [r["state"] for r in api.reports[-1]["results"]] == ["NoData"]
            assert await figure(session, url, "store_damaged_files") == 1
            assert process.returncode is None

    asyncio.run(scene())


@pytest.mark.root
def test_full_volume_is_told_and_all_else_goes_on_and_each_batch_counts_once_when_there_is_room(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    document = make.document()
    (objective,) = objectives(parsing.parse(document))
    minute = int(time.time()) // 60 * 60

    def counts(good: int) -> SliRow:
        return SliRow(*objective.key, minute, good, histogram={40: good}, coverage=Coverage(seen=good))

    async def scene(folder: Path) -> None:
        api = ApiServer(document)
        api.lists["pods"] = [CART]
        store = folder / "sli.db"

        def counted() -> int:
            with SqliteStore(store, readonly=True) as reader:
                return reader.events(objective.key, minute, minute + 60).good

        async with (
            operator(tmp_path, tls_dir, api, "env", f"LATENCYPROBE_STORE={store}") as (process, url),
            trusting(tls_dir) as session,
        ):
            await make.until(lambda: ready(session, url), timeout_s=60)

            async def first() -> bool:
                return (await post(session, url, 0, counts(150)))[0] == 200

            await make.until(first, timeout_s=60, poll_s=0.2)
            status = agent_status((await plan(session, url))["generation"])  # or its own wait for the agent
            async with session.post(f"{url}/v1/nodes/n1/status", json=msgspec.to_builtins(status)) as answered:
                assert answered.status == 204
            sequence, total, answer = 1, 150, (200, "")

            async def settled() -> bool:
                nonlocal sequence, total
                assert (await post(session, url, sequence, counts(1)))[0] == 200
                sequence, total = sequence + 1, total + 1
                return counted() >= 150

            await make.until(settled, "it is settled", timeout_s=90, poll_s=0.2)
            fill(folder)
            while answer[0] == 200:  # the log has some room of its own
                answer = await post(session, url, sequence, counts(1), *many())
                sequence, total = (sequence + 1, total + 1) if answer[0] == 200 else (sequence, total)
            assert answer == (503, "30")
            assert await plan(session, url)
            await make.until(lambda: "StoreFull" in conditions(api), seen=lambda: api.statuses, timeout_s=60)
            assert "free some space" in conditions(api)["StoreFull"]["message"]
            (result,) = api.reports[-1]["results"]
            assert (result["state"], "disk is full" in result["reason"]) == ("Incomplete", True)
            make_room(folder)

            async def again() -> bool:
                return (await post(session, url, sequence, counts(1), *many()))[0] == 200

            for _ in range(2):  # sent again it is known, and changes nothing
                await make.until(again, timeout_s=90, poll_s=0.2)
            await make.until(lambda: "StoreFull" not in conditions(api), timeout_s=60)
            assert process.returncode is None
            await make.until(lambda: counted() >= total + 1, "it is settled", timeout_s=90, poll_s=0.2)
            assert counted() == total + 1

    def many() -> list[SliRow]:
        peers = {f"shop/{number:04}-{'x' * 240}": 1 for number in range(20)}
        slow = [replace(counts(0), minute=minute - 3600 * hour, peers=peers) for hour in range(1, 20)]
        return [*slow, *(replace(counts(0), minute=minute - 60 * number) for number in range(1, 400))]

    with volume(tmp_path / "volume", "2m") as folder:
        asyncio.run(scene(folder))
