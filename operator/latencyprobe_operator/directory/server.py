"""The directory's HTTPS calls (design: api.md section 4): parse, check, call one thing, answer.

`app.py` gives it the planner, the agents' registry, the state, the ingest and the authenticator, and serves
`app()`. Until `open` it answers 503, so that a fresh operator never streams an empty plan to nodes that measure.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from latencyprobe.errors import StoreError
from latencyprobe.plan import AgentStatus, IdentityAnswer, IdentityRequest, PlanLine, Recall, RecallAnswer
from latencyprobe.sli import SliAnswer, SliBatch
from latencyprobe_operator.agents import Agents
from latencyprobe_operator.directory.auth import Authenticator, Caller
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.limits import (
    MAX_ADDRESSES,
    MAX_BODY_BYTES,
    MAX_HALVES,
    MAX_KEYS,
    MAX_STREAMS,
    Bucket,
    Refused,
)
from latencyprobe_operator.directory.recall import Switchboard
from latencyprobe_operator.identities import identify, nodes_at
from latencyprobe_operator.planner import Planner
from latencyprobe_operator.state import ClusterState

log = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
VALID_S = 15.0
UNSETTLED_VALID_S = 2.0  # a caller's agent is about to apply its plan: ask again soon
WRITE_TIMEOUT_S = 10.0  # an agent that does not read its stream for so long has lost it
MAX_SMALL_BODY = 256 << 10

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class Directory:
    """The calls. `published` wakes the streams of nodes whose plan changed."""

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        state: ClusterState,
        ingest: Ingest,
        auth: Authenticator,
        *,
        deaf: Callable[[], list[str]] = list,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.streams: dict[str, asyncio.Event] = {}
        self.is_open = False
        self.metrics: Callable[[], bytes] = bytes  # set by app.py, which knows all that is counted
        self._planner, self._agents, self._state, self._ingest, self._auth = planner, agents, state, ingest, auth
        self.switchboard = Switchboard(lambda address: nodes_at(address, state), self._wake)
        self._deaf, self._heard = deaf, heard
        self._buckets: defaultdict[str, Bucket] = defaultdict(lambda: Bucket(per_s=20, burst=100))

    def open(self) -> None:
        """Begin to answer agents: the first plans are made."""
        self.is_open = True

    def close(self) -> None:
        """End the streams and answer agents no more: they come back to the next operator."""
        self.is_open = False
        for node in self.streams:
            self._wake(node)

    def published(self, nodes: frozenset[str]) -> None:
        """Stream the plans of these nodes again."""
        for node in nodes & self.streams.keys():
            self._wake(node)

    def _wake(self, node: str) -> None:
        self.streams[node].set()

    def app(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes([
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._get_metrics),
            web.get("/v1/nodes/{node}/plan", self._plan),
            web.post("/v1/nodes/{node}/status", self._status),
            web.post("/v1/nodes/{node}/sli", self._sli),
            web.post("/v1/identities", self._identities),
            web.post("/v1/recall", self._recall),
        ])  # fmt: skip
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn refusals into answers and count them; what is not foreseen is our fault and says nothing."""
        try:
            response = await handler(request)
        except Refused as error:
            response = web.json_response({"error": str(error)}, status=error.status)
        except StoreError as error:
            log.error("%s", error)
            response = web.json_response({"error": "the store cannot be written: see the operator's log"}, status=503)
        except web.HTTPException as error:
            response = web.json_response({"error": error.reason}, status=error.status)
        route = request.match_info.route.resource
        self.requests[route.canonical if route else "unknown", response.status] += 1
        return response

    async def _healthz(self, _: web.Request) -> web.Response:
        deaf = self._deaf()
        return web.Response(text=f"deaf: {','.join(deaf)}"[:64] if deaf else "ok", status=503 if deaf else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok" if self.is_open else "starting", status=200 if self.is_open else 503)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        await self._auth.metrics_reader(_token(request))
        return web.Response(body=self.metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        caller = await self._caller(request)
        if len(self.streams) >= MAX_STREAMS and caller.node not in self.streams:
            raise Refused(503, f"{MAX_STREAMS} plan streams are open: try again later")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        changed = asyncio.Event()
        if (older := self.streams.get(caller.node)) is not None:
            older.set()  # it sees that it is not the node's stream any more and ends
        self.streams[caller.node] = changed
        self.switchboard.listens(caller.node, now=True)
        try:
            await self._stream(caller, changed, response)
        except (ConnectionError, TimeoutError):
            log.info("plan stream of %s broke", caller.node)
        finally:
            if self.streams.get(caller.node) is changed:
                del self.streams[caller.node]
                self.switchboard.listens(caller.node, now=False)
        return response

    async def _stream(self, caller: Caller, changed: asyncio.Event, response: web.StreamResponse) -> None:
        """Write plans, recall and heartbeats until the token ends (the agent comes back with the next one) or we do."""
        sent = ""
        while self.is_open and time.monotonic() < caller.until_s and self.streams.get(caller.node) is changed:
            changed.clear()
            plan = self._planner.plan_of(caller.node)
            line = PlanLine(plan if plan.digest != sent else None, self.switchboard.take(caller.node))
            sent = plan.digest
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(msgspec.json.encode(line) + b"\n")
            try:
                async with asyncio.timeout(min(HEARTBEAT_S, max(0.0, caller.until_s - time.monotonic()))):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _status(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        status = await _body(request, AgentStatus)
        self._agents.heard(caller.node, status, self._planner.plan_of(caller.node), time.monotonic())
        self._heard()
        return web.Response(status=204)

    async def _identities(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        addresses = (await _body(request, IdentityRequest)).addresses
        if len(addresses) > MAX_ADDRESSES:
            raise Refused(400, f"$.addresses: {len(addresses)} of them: at most {MAX_ADDRESSES}")
        found = tuple(identify(address, self._state, self._agents) for address in addresses)
        settled = all(i.measured or not self._planner.calls(i.node, i.uid) for i in found)
        valid_s = VALID_S if settled else UNSETTLED_VALID_S
        return _json(IdentityAnswer(found, self._planner.plan_of(caller.node).generation, valid_s))

    async def _recall(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        recall = await _body(request, Recall)
        for field, count, most in (
            ("asks", sum(len(ask.keys) or 1 for ask in recall.asks), MAX_KEYS),
            ("halves", len(recall.halves), MAX_HALVES),
        ):
            if count > most:
                raise Refused(400, f"$.{field}: {count} of them: at most {most}")
        self.switchboard.answer(caller.node, recall.halves)
        return _json(RecallAnswer(self.switchboard.ask(caller.node, recall.asks)))

    async def _sli(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        batch = await _body(request, SliBatch, MAX_BODY_BYTES)
        expected = await self._ingest.take(caller.node, batch)
        return _json(SliAnswer(expected), status=200 if expected > batch.sequence else 409)

    async def _caller(self, request: web.Request) -> Caller:
        """Return the agent that calls; one that names a node must be there."""
        node = request.match_info.get("node", "")
        try:
            caller = await self._auth.agent(_token(request))
            if node and node != caller.node:
                raise Refused(403, f"the token belongs to node {caller.node}, not to {node}")
        except Refused as error:
            if error.status in (401, 403) and node in self._planner.nodes:
                self._agents.refused(node, str(error))
            raise
        if not self.is_open:
            raise Refused(503, "the operator is starting or ending: try again")
        if not self._buckets[caller.node].take():
            raise Refused(429, "more than 20 requests a second: slow down")
        return caller


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _body(request: web.Request, kind: type[T], limit: int = MAX_SMALL_BODY) -> T:
    """Decode a request's body. Raises Refused: 413 for its size, 400 with the field's path for its content."""
    if (request.content_length or 0) > limit:
        raise Refused(413, f"{request.content_length} bytes: at most {limit}")
    body = await request.read()
    if len(body) > limit:
        raise Refused(413, f"{len(body)} bytes: at most {limit}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, str(error)) from error


def _json(answer: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), status=status, content_type="application/json")
