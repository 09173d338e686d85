"""app.py: the whole operator as a process, between an API server that plays its part and an agent's plan stream."""

import asyncio
import json
import os
import signal
import ssl
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from latencyprobe import parsing
from latencyprobe.manifest import API_VERSION
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.directory.auth import NODE_CLAIM
from tests.support.ports import free_port

GROUP, VERSION = API_VERSION.split("/")
NODE = {"metadata": {"name": "n1", "uid": "uid-n1"}, "status": {"addresses": []}}
AGENT = {"username": "system:serviceaccount:lp-agents:latencyprobe-agent", "extra": {NODE_CLAIM: ["n1"]}}
KINDS = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [{"name": GROUP, "preferredVersion": {"version": VERSION}, "versions": [{"version": VERSION}]}]
    },
    "/api/v1": {"resources": []},
    f"/apis/{API_VERSION}": {
        "resources": [
            {"name": "latencyprobes", "singularName": "latencyprobe", "kind": "LatencyProbe", "namespaced": True}
            | {"verbs": ["list", "watch", "patch"]}
        ]
    },
}


class ApiServer:
    """Has one node, a Lease and the given LatencyProbes with their namespaces. Its watches are silent. `knows_kopf`: it
    accepts kopf's credentials."""

    def __init__(self, *probes: dict[str, Any]) -> None:
        self.lease: dict[str, Any] = {}
        self.knows_kopf = True
        self.reports: list[dict[str, Any]] = []
        names = sorted({probe["metadata"]["namespace"] for probe in probes})
        self.lists = {
            "nodes": [NODE],
            "latencyprobes": list(probes),
            "namespaces": [{"metadata": {"name": name, "uid": name}} for name in names],
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not self.knows_kopf and "kopf" in request.headers["User-Agent"]:
            return web.json_response({"kind": "Status", "message": "Unauthorized", "code": 401}, status=401)
        if request.path in KINDS:
            return web.json_response(KINDS[request.path])
        if "/leases" in request.path:
            if request.method == "GET" and not self.lease:
                return web.json_response({}, status=404)
            self.lease = self.lease if request.method == "GET" else await request.json()
            return web.json_response(self.lease)
        if request.path.endswith("/tokenreviews"):
            status = {"authenticated": True, "audiences": ["latencyprobe-directory"], "user": AGENT}
            return web.json_response({"status": status})
        if "watch" in request.query:
            await (silent := web.StreamResponse()).prepare(request)
            await asyncio.Event().wait()
            return silent
        if "/latencyreports/" in request.path:
            self.reports.append(await request.json())
        items = self.lists.get(request.path.rpartition("/")[2], [])
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


@asynccontextmanager
async def operator(folder: Path, tls_dir: Path, api: ApiServer) -> Any:
    """Yield the operator's process and the address of its directory."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listen = f"127.0.0.1:{free_port()}"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    user = {"name": "u", "user": {"token": "t"}}
    (folder / "kubeconfig").write_text(
        json.dumps({"clusters": [cluster], "users": [user], "contexts": contexts, "current-context": "c"})
    )
    (folder / "key").write_bytes(bytes(32))
    settings = {"NAMESPACE": "lp", "LISTEN": listen, "TLS_DIR": tls_dir, "PAIR_KEY_FILE": folder / "key"}
    settings |= {"STORE": folder / "sli.db"}
    environment = {f"LATENCYPROBE_{name}": str(value) for name, value in settings.items()}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(Path(sys.executable).with_name("latencyprobe"), "operator"),
            env=os.environ | environment | {"KUBECONFIG": str(folder / "kubeconfig")},
            stderr=log,
        )
    try:
        yield process, f"https://{listen}"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await runner.cleanup()
        print((folder / "log").read_text())


async def ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


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

            await make.until(reported, "it has reported", 30)
        states = {result["objective"]: (result["state"], result["events"]) for result in api.reports[0]["results"]}
        assert states == {"broken": ("Incomplete", 0), "fast": ("Met", 200)}

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
            await make.until(lambda: ready(session, url))
            assert api.lease["spec"]["holderIdentity"]
            async with session.get(f"{url}/v1/nodes/n1/plan", headers={"Authorization": "Bearer t"}) as stream:
                await stream.content.readuntil(b"\n")
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(30):
                    assert await process.wait() == 0
                assert await stream.content.read() == b"", "the stream was ended, not torn"
            assert api.lease["spec"]["holderIdentity"] == "", "the next operator need not wait"

    asyncio.run(scene())


async def why_it_ended(process: asyncio.subprocess.Process, folder: Path) -> str:
    """Wait for the process to end with an error; returns its log."""
    async with asyncio.timeout(60):
        assert await process.wait() == 1
    return (folder / "log").read_text()


def test_operator_that_lost_its_lease_ends_so_that_only_its_holder_writes(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = ApiServer()
        async with operator(tmp_path, tls_dir, api) as (process, _):
            await make.until(lambda: api.lease)
            api.lease = api.lease | {"spec": api.lease["spec"] | {"holderIdentity": "another"}}
            assert "lease latencyprobe-operator is lost" in await why_it_ended(process, tmp_path)
        assert api.lease["spec"]["holderIdentity"] == "another"

    asyncio.run(scene())


def test_operator_without_a_usable_store_ends_and_lets_the_next_one_lead(tmp_path: Path, tls_dir: Path) -> None:
    async def scene() -> None:
        api = ApiServer()
        (tmp_path / "sli.db").write_bytes(b"no database " * 100)
        async with operator(tmp_path, tls_dir, api) as (process, _):
            assert "sli.db" in await why_it_ended(process, tmp_path)
        assert api.lease["spec"]["holderIdentity"] == ""

    asyncio.run(scene())


def test_operator_whose_credentials_kopf_cannot_use_ends(tmp_path: Path, tls_dir: Path) -> None:
    async def scene() -> None:
        api = ApiServer()
        api.knows_kopf = False
        async with operator(tmp_path, tls_dir, api) as (process, _):
            assert "Ran out of valid credentials" in await why_it_ended(process, tmp_path)

    asyncio.run(scene())
