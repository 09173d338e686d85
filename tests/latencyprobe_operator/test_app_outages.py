"""app.py without its API server, or without the Lease: what it writes, what it serves, and how it goes on."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from latencyprobe.errors import StoreError
from latencyprobe.store import SqliteStore
from tests.latencyprobe_operator.operator_process import (
    ApiServer,
    figure,
    operator,
    plan,
    ready,
    taken,
    trusting,
)

pytestmark = pytest.mark.slow


def test_another_that_has_the_lease_gets_agents_and_store_and_after_it_we_lead_again(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = ApiServer(make.document())
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            first = await plan(session, url)
            async with session.get(f"{url}/v1/nodes/n1/plan") as stream:
                await stream.content.readuntil(b"\n")
                api.take_lease("another")
                async with asyncio.timeout(60):
                    await stream.content.read()  # it is ended, not torn
            await make.until(lambda: settled(session, url), "agents are answered 503", timeout_s=60)
            await make.until(free, "another may write the store now", timeout_s=60)
            written = len(api.writes)
            api.take_lease("")
            await make.until(lambda: ready(session, url), timeout_s=60)
            assert (await plan(session, url))["generation"] > first["generation"]
            await make.until(lambda: len(api.writes) > written, "it writes again", timeout_s=60)
            assert process.returncode is None

    def free() -> bool:
        try:
            SqliteStore(tmp_path / "sli.db").close()
        except StoreError:
            return False
        return True

    async def settled(session: aiohttp.ClientSession, url: str) -> bool:
        try:
            return not await ready(session, url) and await plan(session, url) == {}
        except aiohttp.ClientConnectionError:
            return False

    asyncio.run(scene())


def test_of_two_operators_one_leads_and_when_it_is_frozen_the_other_and_never_both(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    """Both have the same volume, whose store the frozen one gives up when it goes on."""

    async def scene() -> None:
        api = ApiServer(make.document())
        store = f"LATENCYPROBE_STORE={tmp_path / 'sli.db'}"
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
        async with trusting(tls_dir) as session, operator(tmp_path / "one", tls_dir, api, "env", store) as (one, url):
            await make.until(lambda: ready(session, url), timeout_s=60)
            await make.until(lambda: api.statuses and api.reports, timeout_s=60)
            first = {host for host, _ in api.writes}
            async with operator(tmp_path / "other", tls_dir, api, "env", store) as (_, other_url):
                await make.until(lambda: refuses(session, other_url), timeout_s=60)
                one.send_signal(signal.SIGSTOP)
                await make.until(lambda: ready(session, other_url), timeout_s=60)
                await make.until(lambda: {host for host, _ in api.writes} > first, timeout_s=60)
                assert await plan(session, other_url)
                before = len(api.writes)
                one.send_signal(signal.SIGCONT)
                await make.until(lambda: refuses(session, url), timeout_s=60)
                await make.until(lambda: taken(session, other_url), "the store is given up", timeout_s=90, poll_s=0.2)
                assert first.isdisjoint({host for host, _ in api.writes[before:]})

    async def refuses(session: aiohttp.ClientSession, url: str) -> bool:
        try:
            async with session.get(f"{url}/readyz") as answer:
                return answer.status == 503
        except aiohttp.ClientConnectionError:
            return False

    asyncio.run(scene())


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_outage_of_the_api_server_stops_writing_and_neither_plans_nor_the_process(
    make: Any, tmp_path: Path, tls_dir: Path, how: str
) -> None:
    async def scene() -> None:
        api = ApiServer(make.document())
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            await make.until(lambda: figure(session, url, "may_write"))
            before = await plan(session, url)
            api.away = how

            async def held_back() -> bool:
                return await figure(session, url, "may_write") == 0

            await make.until(held_back, "the Lease is not renewed for 10 s", timeout_s=60)
            async with session.get(f"{url}/healthz") as health:
                assert health.status == 200
            assert await ready(session, url)
            assert await plan(session, url) == before
            async with session.post(f"{url}/v1/identities", json={"addresses": ["10.9.9.9"]}) as answer:
                assert answer.status == 200
            batch = {"instance": "i", "sequence": 0, "rows": []}
            async with session.post(f"{url}/v1/nodes/n1/sli", json=batch) as answer:
                assert (answer.status, (await answer.json())["expected"]) == (200, 1)
            api.away = ""
            await make.until(lambda: figure(session, url, "may_write"), timeout_s=60)
            assert process.returncode is None
            assert await plan(session, url) == before

    asyncio.run(scene())
