"""app.py: the operator begins, judges, ends when it is asked to, and by nothing that becomes of kopf."""

import asyncio
import signal
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from latencyprobe import parsing
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from tests.latencyprobe_operator.operator_process import ApiServer, operator, plan, ready, trusting
from tests.support.ports import free_port, loopback_addresses

pytestmark = pytest.mark.slow  # a process of its own each


def test_row_that_broke_older_versions_is_in_the_store_and_the_operator_starts_and_judges_the_others(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    both = [{"name": name, "target": "cart", "threshold": "25ms", "goal": "99"} for name in ("broken", "fast")]
    document = make.document(objectives=both)
    minute = int(time.time()) // 60 * 60 - 60
    with SqliteStore(tmp_path / "sli.db") as store:
        broken, fast = (objective.key for objective in objectives(parsing.parse(document)))
        store.add([SliRow(*broken, minute, 10**18, histogram={40_000: 10**18}), SliRow(*fast, minute, 200)])

    async def scene() -> None:
        api = ApiServer(document)
        trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(tls_dir / "tls.crt")))
        async with (
            operator(tmp_path, tls_dir, api) as (process, url),
            aiohttp.ClientSession(connector=trust) as session,
        ):

            async def reported() -> bool:
                assert process.returncode is None
                return await ready(session, url) and bool(api.reports)

            await make.until(reported, "it has reported", 120)
        states = {result["objective"]: (result["state"], result["events"]) for result in api.reports[0]["results"]}
        assert states == {"broken": ("Incomplete", 0), "fast": ("Met", 200)}

    asyncio.run(scene())


class KnowsOthers(ApiServer):
    """Has PrometheusRules and Reports of openreports.io too. `others`: what was written of them, by path."""

    def __init__(self, *probes: dict[str, Any]) -> None:
        super().__init__(*probes)
        self.others: dict[str, dict[str, Any]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.startswith(("/apis/monitoring.coreos.com/", "/apis/openreports.io/")):
            return await super().answer(request)
        if request.method == "PATCH":
            self.others[request.path] = await request.json()
            return web.json_response({"metadata": {"resourceVersion": "1"}})
        if "/namespaces/" in request.path:
            return web.json_response({}, status=404)
        return web.json_response({"metadata": {}, "items": []})


def test_rules_and_reports_of_others_kinds_are_written_by_an_operator_that_is_told_to(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = KnowsOthers(make.document())
        told = ("env", 'LATENCYPROBE_RULE_LABELS={"release": "stack"}', "LATENCYPROBE_OPEN_REPORTS=true")
        async with operator(tmp_path, tls_dir, api, *told):
            await make.until(lambda: len(api.others) == 2, "both are written", 60, seen=lambda: api.others)
        rule = api.others["/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules/latencyprobe-checkout"]
        report = api.others["/apis/openreports.io/v1alpha1/namespaces/shop/reports/latencyprobe"]
        assert rule["metadata"]["labels"]["release"] == "stack"
        assert [one["result"] for one in report["results"]] == ["skip"]
        owners = [one["uid"] for it in (rule, report) for one in it["metadata"]["ownerReferences"]]
        assert owners == [make.document()["metadata"]["uid"]] * 2

    asyncio.run(scene())


def test_sigterm_ends_the_operator_at_once_though_agents_hold_their_plan_streams(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = ApiServer()
        trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(tls_dir / "tls.crt")))
        async with (
            operator(tmp_path, tls_dir, api) as (process, url),
            aiohttp.ClientSession(connector=trust) as session,
        ):
            await make.until(lambda: ready(session, url), timeout_s=60)
            assert api.lease["spec"]["holderIdentity"]
            async with session.get(f"{url}/v1/nodes/n1/plan", headers={"Authorization": "Bearer t"}) as stream:
                await stream.content.readuntil(b"\n")
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(30):
                    assert await process.wait() == 0
                await stream.content.read()  # it was ended, not torn
            assert api.lease["spec"]["holderIdentity"] == "", "the next operator need not wait"

    asyncio.run(scene())


def test_the_operator_answers_over_ipv4_and_over_ipv6(make: Any, tmp_path: Path, tls_dir: Path) -> None:
    """A kubelet asks at the pod's first address, which is of IPv6 in some clusters."""

    async def scene() -> None:
        port = free_port()
        everywhere = ("env", f"LATENCYPROBE_LISTEN=:{port}")
        anybody = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False))
        async with operator(tmp_path, tls_dir, ApiServer(), *everywhere), anybody as session:
            for host in loopback_addresses():
                await make.until(partial(ready, session, f"https://{host}:{port}"), f"it is ready at {host}", 60)

    asyncio.run(scene())


def test_kopf_that_ends_ends_nothing_else_and_begins_anew(make: Any, tmp_path: Path, tls_dir: Path) -> None:
    async def scene() -> None:
        api = ApiServer(make.document())
        api.knows_kopf = False
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            log = tmp_path / "log"
            await make.until(lambda: "Ran out of valid credentials" in log.read_text(), timeout_s=60)
            await make.until(lambda: ready(session, url), timeout_s=60)
            assert await plan(session, url)
            ends = log.read_text().count("Ran out of valid credentials")
            await make.until(lambda: log.read_text().count("Ran out of valid credentials") > ends, timeout_s=60)
            assert process.returncode is None

    asyncio.run(scene())
