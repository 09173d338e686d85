"""The whole operator as a process, between an API server that plays its part and an agent that asks."""

import asyncio
import json
import os
import ssl
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from latencyprobe.api import API_VERSION
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe_operator.directory.auth import NODE_CLAIM
from tests.support.ports import free_port

GROUP, VERSION = API_VERSION.split("/")
NODE = {"metadata": {"name": "n1", "uid": "uid-n1"}, "status": {"addresses": []}}
CART = {
    "metadata": {"name": "cart-1", "namespace": "shop", "uid": "u1", "labels": {"app": "cart"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "ports": [{"name": "http", "containerPort": 8080}]}]},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.5"}]},
}
AGENT = "system:serviceaccount:lp-agents:latencyprobe-agent"
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
    accepts kopf's credentials; `away`: it "refuses" or "hangs"; `writes`: what was written besides the Lease, and at
    which of its addresses; `renewals`: how often that was."""

    def __init__(self, *probes: dict[str, Any]) -> None:
        self.lease: dict[str, Any] = {}
        self.knows_kopf = True
        self.away = ""
        self.writes: list[tuple[str, str]] = []
        self.renewals = 0
        self.reports: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        names = sorted({probe["metadata"]["namespace"] for probe in probes})
        self.lists = {
            "nodes": [NODE],
            "latencyprobes": list(probes),
            "namespaces": [{"metadata": {"name": name, "uid": name}} for name in names],
        }

    def take_lease(self, holder: str) -> None:
        """Another process writes itself into the Lease, or out of it."""
        times = self.lease["spec"]["leaseTransitions"] + bool(holder)
        self._store({"spec": self.lease["spec"] | {"holderIdentity": holder, "leaseTransitions": times}})

    def _store(self, lease: dict[str, Any]) -> None:
        version = int(self.lease.get("metadata", {}).get("resourceVersion", "0")) + 1
        self.lease = lease | {"metadata": {"name": "latencyprobe-operator", "resourceVersion": str(version)}}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.away == "hangs":
            await asyncio.Event().wait()
        if self.away:
            assert request.transport
            request.transport.abort()
            raise web.HTTPServiceUnavailable
        if not self.knows_kopf and "kopf" in request.headers["User-Agent"]:
            return web.json_response({"kind": "Status", "message": "Unauthorized", "code": 401}, status=401)
        if request.path in KINDS:
            return web.json_response(KINDS[request.path])
        if "/leases" in request.path:
            if request.method == "GET" and not self.lease:
                return web.json_response({}, status=404)
            if request.method != "GET":
                lease = await request.json()
                if lease["metadata"].get("resourceVersion") != self.lease.get("metadata", {}).get("resourceVersion"):
                    return web.json_response({"message": "the object has been modified"}, status=409)
                self._store(lease)
                self.renewals += 1
            return web.json_response(self.lease)
        if request.path.endswith("/subjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}})
        if request.path.endswith("/tokenreviews"):
            return web.json_response({"status": reviewed((await request.json())["spec"]["token"])})
        if "watch" in request.query:
            await (silent := web.StreamResponse()).prepare(request)
            await asyncio.Event().wait()
            return silent
        if request.method != "GET":
            self.writes.append((request.host, request.path))
        if request.path.endswith("/status"):
            self.statuses.append(await request.json())
        if "/latencyreports/" in request.path:
            self.reports.append(await request.json())
        items = self.lists.get(request.path.rpartition("/")[2], [])
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


def reviewed(token: str) -> dict[str, Any]:
    """Every token is an agent's: `token-NODE` that of a node, others that of n1."""
    user = {"username": AGENT, "extra": {NODE_CLAIM: [token.removeprefix("token-") if "-" in token else "n1"]}}
    return {"authenticated": True, "audiences": ["latencyprobe-directory"], "user": user}


@asynccontextmanager
async def played(api: ApiServer) -> AsyncIterator[str]:
    """Serve it on loopback; yields its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def process(
    folder: Path, tls_dir: Path, server: str, listen: str, *wrapper: str, token: str = "t"
) -> AsyncIterator[Process]:
    """Run the operator under the API server at an address; what it keeps and logs is in `folder`. `wrapper`: a command
    that runs it; `token`: by which the API server knows it."""
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    cluster, user = {"name": "c", "cluster": {"server": server}}, {"name": "u", "user": {"token": token}}
    (folder / "kubeconfig").write_text(
        json.dumps({"clusters": [cluster], "users": [user], "contexts": contexts, "current-context": "c"})
    )
    (folder / "key").write_bytes(bytes(32))
    settings = {"NAMESPACE": "lp", "LISTEN": listen, "TLS_DIR": tls_dir, "PAIR_KEY_FILE": folder / "key"}
    settings |= {"STORE": folder / "sli.db"}
    environment = {f"LATENCYPROBE_{name}": str(value) for name, value in settings.items()}
    with (folder / "log").open("ab") as log:
        running = await asyncio.create_subprocess_exec(
            *(*wrapper, Path(sys.executable).with_name("latencyprobe"), "operator"),
            env=os.environ | environment | {"KUBECONFIG": str(folder / "kubeconfig")},
            stderr=log,
        )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


@asynccontextmanager
async def operator(folder: Path, tls_dir: Path, api: ApiServer, *wrapper: str) -> AsyncIterator[tuple[Process, str]]:
    """Yield the operator's process and the address of its directory. `wrapper`: a command that runs it."""
    listen = f"127.0.0.1:{free_port()}"
    try:
        async with played(api) as server, process(folder, tls_dir, server, listen, *wrapper) as running:
            yield running, f"https://{listen}"
    finally:
        print((folder / "log").read_text())


async def ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


def trusting(tls_dir: Path) -> aiohttp.ClientSession:
    """A client of the directory, with an agent's token."""
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(tls_dir / "tls.crt")))
    return aiohttp.ClientSession(connector=trust, headers={"Authorization": "Bearer t"})


async def plan(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The first line of the plan stream of n1; empty while agents are refused."""
    async with session.get(f"{url}/v1/nodes/n1/plan") as stream:
        if stream.status != 200:
            return {}
        line: dict[str, Any] = json.loads(await stream.content.readuntil(b"\n"))
        return line["plan"]


async def figure(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """One of the operator's metrics."""
    async with session.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"latencyprobe_operator_{name} "))
    return float(value)


def conditions(api: ApiServer) -> dict[str, dict[str, str]]:
    """What the status says that was written last."""
    return {c["type"]: c for c in api.statuses[-1]["status"]["conditions"]} if api.statuses else {}


async def post(session: aiohttp.ClientSession, url: str, sequence: int, *rows: SliRow) -> tuple[int, str]:
    """Post counts as the agent of n1; returns the answer's status and when to come again."""
    batch = msgspec.to_builtins(SliBatch("i", sequence, rows))
    async with session.post(f"{url}/v1/nodes/n1/sli", json=batch) as answer:
        return answer.status, answer.headers.get("Retry-After", "")


async def taken(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether it takes an empty batch of counts."""
    return (await post(session, url, 0))[0] == 200
