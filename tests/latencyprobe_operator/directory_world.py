"""A directory over real TLS with all its parts, and a client of it."""

import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from latencyprobe import wire
from latencyprobe.plan import ServerHalf
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.auth import NODE_CLAIM, Authenticator, FakeReviewer
from latencyprobe_operator.directory.connections import Connections
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.server import Directory
from latencyprobe_operator.directory.tls import Certificate
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports.store_thread import StoreThread

AGENT = "system:serviceaccount:agents:agent"
HALF = ServerHalf("ab" * 16, (1, 2, 3, 4), service="cart", namespace="shop", pod="cart-1")
AGENTS_ADDRESSES = ("127.0.0.2", "127.0.0.3")  # of those who want to be known as agents by them


class World:
    """A directory with its parts, and a client that trusts its certificate."""

    def __init__(self, make: Any, store_thread: StoreThread) -> None:
        cart = make.pod("cart-1")
        self.state = make.state(cart, make.pod("web-1", node="n2"), make.service("cart"), make.slice_of("cart", cart))
        self.planner, self.agents, self.reviewer = Planner(1000, b"k" * 32), Agents(), FakeReviewer({})
        for node in ("n1", "n2"):
            self.reviewer.users[f"token-{node}"] = Reviewed(AGENT, extra={NODE_CLAIM: [node]})
        self.reviewer.users["token-stranger"] = Reviewed("system:serviceaccount:shop:default")
        self.store_thread, self.ingest = store_thread, Ingest(store_thread)
        auth = Authenticator(self.reviewer, "agents", "agent", lambda *_: "", is_agent=lambda a: a in AGENTS_ADDRESSES)
        self.age_s = 0
        self.connections = Connections(
            lambda address: address in AGENTS_ADDRESSES, lambda address: bool(self.state.node_at(address))
        )
        self.directory = Directory(
            *(self.planner, self.agents, self.state, self.ingest, auth),
            unconfirmed_s=lambda: self.age_s,
            connections=self.connections,
        )
        self.plan(make.probe())
        self.directory.open()

    def plan(self, *probes: Any) -> None:
        by_key = {(p.namespace, p.name): p for p in probes}
        changed = self.planner.update(by_key, self.state, self.state.take_changes())
        self.agents.planned(changed, self.planner.nodes, 0.0)
        for node in changed:
            self.ingest.asked.planned(self.planner.plan_of(node))
        self.directory.streams.publish(changed)

    def client_at(self, address: str) -> aiohttp.ClientSession:
        """A client that calls from an address of its own."""
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.tls, local_addr=(address, 0)))

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str = "token-n1",
        version: str = str(wire.VERSION),
        *,
        client: aiohttp.ClientSession | None = None,
    ) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes | io.BytesIO) or body is None else msgspec.json.encode(body)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {wire.HEADER: version} if version else {}
        async with (client or self.client).request(method, self.url + path, data=data, headers=headers) as answer:
            return answer.status, await answer.read()

    client: aiohttp.ClientSession
    tls: ssl.SSLContext
    url: str


@asynccontextmanager
async def world(make: Any, tls_dir: Path, store: Path) -> AsyncIterator[World]:
    async with StoreThread(lambda: SqliteStore(store)) as store_thread:
        it = World(make, store_thread)
        await it.ingest.asked.save()
        runner = it.directory.runner(shutdown_timeout=0.1)
        await runner.setup()
        tls = Certificate(tls_dir, it.connections).context
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        it.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        it.tls = ssl.create_default_context(cafile=str(tls_dir / "tls.crt"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=it.tls)) as it.client:
            yield it
        await runner.cleanup()


Play = Callable[[Callable[[World], Awaitable[None]]], None]
