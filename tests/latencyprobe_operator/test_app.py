"""app.py: the whole operator as a process, between an API server that plays its part and an agent's plan stream."""

import asyncio
import json
import os
import signal
import socket
import ssl
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from latencyprobe.manifest import API_VERSION
from latencyprobe_operator.directory.auth import NODE_CLAIM

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
    """Has one node and a Lease. Its watches are silent."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
        items = [NODE] if request.path.endswith("/nodes") else []
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


@asynccontextmanager
async def operator(folder: Path, tls_dir: Path, api: ApiServer) -> Any:
    """Yield the operator's process and the address of its directory."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with socket.create_server(("127.0.0.1", 0)) as trial:
        listen = f"127.0.0.1:{trial.getsockname()[1]}"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    user = {"name": "u", "user": {"token": "t"}}
    (folder / "kubeconfig").write_text(
        json.dumps({"clusters": [cluster], "users": [user], "contexts": contexts, "current-context": "c"})
    )
    (folder / "key").write_bytes(bytes(32))
    settings = {"NAMESPACE": "lp", "LISTEN": listen, "TLS_DIR": tls_dir, "PAIR_KEY_FILE": folder / "key"}
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("latencyprobe"), "operator"),
        env=os.environ
        | {f"LATENCYPROBE_{name}": str(value) for name, value in (settings | {"STORE": folder / "sli.db"}).items()}
        | {"KUBECONFIG": str(folder / "kubeconfig")},
    )
    try:
        yield process, f"https://{listen}"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await runner.cleanup()


async def ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


def test_sigterm_ends_the_operator_at_once_though_agents_hold_their_plan_streams(tmp_path: Path, tls_dir: Path) -> None:
    async def scene() -> None:
        api = ApiServer()
        trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(tls_dir / "tls.crt")))
        async with (
            operator(tmp_path, tls_dir, api) as (process, url),
            aiohttp.ClientSession(connector=trust) as session,
        ):
            async with asyncio.timeout(30):
                while not await ready(session, url):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            assert api.lease["spec"]["holderIdentity"]
            async with session.get(f"{url}/v1/nodes/n1/plan", headers={"Authorization": "Bearer t"}) as stream:
                await stream.content.readuntil(b"\n")
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(30):
                    assert await process.wait() == 0
                assert await stream.content.read() == b"", "the stream was ended, not torn"
            assert api.lease["spec"]["holderIdentity"] == "", "the next operator need not wait"

    asyncio.run(scene())
