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
import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace

from latencyprobe import parsing
from latencyprobe.errors import StoreError
from latencyprobe.manifest import API_VERSION
from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore, damage
from latencyprobe_operator.directory.auth import NODE_CLAIM
from tests.latencyprobe_operator.conftest import agent_status
from tests.support.ports import free_port
from tests.support.volumes import fill, make_room, volume

GROUP, VERSION = API_VERSION.split("/")
NODE = {"metadata": {"name": "n1", "uid": "uid-n1"}, "status": {"addresses": []}}
CART = {
    "metadata": {"name": "cart-1", "namespace": "shop", "uid": "u1", "labels": {"app": "cart"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "ports": [{"name": "http", "containerPort": 8080}]}]},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.5"}]},
}
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
    accepts kopf's credentials; `away`: it answers nobody; `writes`: what was written besides the Lease; `renewals`: how
    often that was."""

    def __init__(self, *probes: dict[str, Any]) -> None:
        self.lease: dict[str, Any] = {}
        self.knows_kopf = True
        self.away = False
        self.writes: list[str] = []
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
        self.lease = self.lease | {"spec": self.lease["spec"] | {"holderIdentity": holder, "leaseTransitions": times}}

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
            self.renewals += request.method != "GET"
            self.lease = self.lease if request.method == "GET" else await request.json()
            return web.json_response(self.lease)
        if request.path.endswith("/subjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}})
        if request.path.endswith("/tokenreviews"):
            status = {"authenticated": True, "audiences": ["latencyprobe-directory"], "user": AGENT}
            return web.json_response({"status": status})
        if "watch" in request.query:
            await (silent := web.StreamResponse()).prepare(request)
            await asyncio.Event().wait()
            return silent
        if request.method != "GET":
            self.writes.append(request.path)
        if request.path.endswith("/status"):
            self.statuses.append(await request.json())
        if "/latencyreports/" in request.path:
            self.reports.append(await request.json())
        items = self.lists.get(request.path.rpartition("/")[2], [])
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


@asynccontextmanager
async def operator(folder: Path, tls_dir: Path, api: ApiServer, *wrapper: str) -> Any:
    """Yield the operator's process and the address of its directory. `wrapper`: a command that runs it."""
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
            *(*wrapper, Path(sys.executable).with_name("latencyprobe"), "operator"),
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
                    assert await stream.content.read() == b"", "the stream is ended, not torn"
            await make.until(lambda: settled(session, url), timeout_s=60)
            assert await plan(session, url) == {}
            await make.until(free, "another may write the store now", timeout_s=60)
            written = len(api.writes)
            api.take_lease("")
            await make.until(lambda: ready(session, url), timeout_s=60)
            assert (await plan(session, url))["generation"] > first["generation"]
            assert api.writes[written:] or written, "it writes again"
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


def test_process_that_was_frozen_while_another_took_the_lease_writes_nothing_more(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = ApiServer(make.document())
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            await make.until(lambda: api.reports, timeout_s=60)
            process.send_signal(signal.SIGSTOP)
            frozen = Path(f"/proc/{process.pid}/stat")
            await make.until(lambda: frozen.read_text().rpartition(")")[2].split()[0] == "T")
            api.lists["nodes"] = [
                NODE | {"metadata": NODE["metadata"] | {"labels": {"latencyprobe.dev/measure": "true"}}}
            ]
            api.take_lease("another")
            api.writes.clear()
            process.send_signal(signal.SIGCONT)
            await make.until(lambda: "is lost: another has had it" in (tmp_path / "log").read_text(), timeout_s=60)
            await make.until(lambda: waits(session, url), timeout_s=60)
            assert (api.writes, api.lease["spec"]["holderIdentity"]) == ([], "another")

    async def waits(session: aiohttp.ClientSession, url: str) -> bool:
        try:
            async with session.get(f"{url}/readyz") as answer:
                return answer.status == 503
        except aiohttp.ClientConnectionError:
            return False

    asyncio.run(scene())


def test_outage_of_the_api_server_stops_writing_and_neither_plans_nor_the_process(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    async def scene() -> None:
        api = ApiServer(make.document())
        async with operator(tmp_path, tls_dir, api) as (process, url), trusting(tls_dir) as session:
            await make.until(lambda: ready(session, url), timeout_s=60)
            await make.until(lambda: figure(session, url, "may_write"))
            before = await plan(session, url)
            api.away = True

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
            api.away = False
            await make.until(lambda: figure(session, url, "may_write"), timeout_s=60)
            assert process.returncode is None
            assert await plan(session, url) == before

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


def conditions(api: ApiServer) -> dict[str, dict[str, str]]:
    """What the status says that was written last."""
    return {c["type"]: c for c in api.statuses[-1]["status"]["conditions"]} if api.statuses else {}


async def post(session: aiohttp.ClientSession, url: str, sequence: int, *rows: SliRow) -> tuple[int, str]:
    """Post counts as the agent of n1; returns the answer's status and when to come again."""
    batch = msgspec.to_builtins(SliBatch("i", sequence, rows))
    async with session.post(f"{url}/v1/nodes/n1/sli", json=batch) as answer:
        return answer.status, answer.headers.get("Retry-After", "")


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
    """Let whoever reads a pipe see its end, and find nothing there the next time."""
    with pipe.open("wb"):
        pipe.unlink()


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
            await make.until(lambda: "StoreFailed" in conditions(api), seen=lambda: api.statuses, timeout_s=60)
            assert "not a store: give another path" in conditions(api)["StoreFailed"]["message"]
            assert [r["state"] for r in api.reports[-1]["results"]] == ["Incomplete"]
            assert (tmp_path / "sli.db").read_bytes() == foreign
            (tmp_path / "sli.db").unlink()
            await make.until(lambda: taken(session, url), timeout_s=60, poll_s=0.2)
            await make.until(lambda: "StoreFailed" not in conditions(api), timeout_s=60)
            assert process.returncode is None

    async def taken(session: aiohttp.ClientSession, url: str) -> bool:
        return (await post(session, url, 0))[0] == 200

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
            fill(folder)
            sequence, total, answer = 1, 150, (200, "")
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
            with SqliteStore(store, readonly=True) as reader:
                assert reader.events(objective.key, minute, minute + 60).good == total + 1

    def many() -> list[SliRow]:
        peers = {f"shop/{number:04}-{'x' * 240}": 1 for number in range(20)}
        slow = [replace(counts(0), minute=minute - 3600 * hour, peers=peers) for hour in range(1, 20)]
        return [*slow, *(replace(counts(0), minute=minute - 60 * number) for number in range(1, 400))]

    with volume(tmp_path / "volume", "2m") as folder:
        asyncio.run(scene(folder))
