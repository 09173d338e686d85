"""The directory's HTTPS calls (docs/design/directory.md, "Calls"): parse, check, call one thing, answer.

Until `open` agents get 503.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from latencyprobe import wire
from latencyprobe.errors import StoreError
from latencyprobe.plan import AgentStatus, IdentityRequest, RemoteJoinMessage
from latencyprobe.sli import SliBatch
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.directory.answers import Answers
from latencyprobe_operator.directory.auth import Authenticator, Caller
from latencyprobe_operator.directory.callers import Callers
from latencyprobe_operator.directory.connections import Connections
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.limits import MAX_BODY_BYTES, Refused
from latencyprobe_operator.directory.streams import PlanStreams
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.deliveries import Deliveries
from latencyprobe_operator.plan.planner import Planner

log = logging.getLogger(__name__)

MAX_SMALL_BODY = 256 << 10
MAX_STATUS_BYTES = 1 << 20  # some 5,000 targets; agents leave out what is more
PIECE = 4 << 10  # bytes
BODY_S = 30.0  # for the largest: 140 kB/s
IDLE_S = 90.0  # an agent reports each 15 to 60 s
MAX_HEADERS = 32  # of 8 KiB; a stranger's are kept until all are there
_NO_HTTP = (HttpProcessingError, web.RequestPayloadError)
STORE_RETRY_S = 30  # of a store that is away: as often as it is tried again

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class Directory:
    """The calls. `requests`: by route and HTTP status; `unconfirmed_s`: for how long the API server has not confirmed
    what we know; `on_report` is called after each status of an agent, `deliveries` told which plan it follows,
    `connections` whose each is; `agents_at`: the nodes whose agents may call from an address."""

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        state: ClusterState,
        ingest: Ingest,
        auth: Authenticator,
        *,
        unconfirmed_s: Callable[[], int] = lambda: 0,
        on_report: Callable[[], None] = lambda: None,
        connections: Connections | None = None,
        deliveries: Deliveries | None = None,
        agents_at: Callable[[str], Set[str]] = lambda _: frozenset(),
    ) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self._connections = Connections() if connections is None else connections
        self.streams = PlanStreams(planner, self._nodes_at, unconfirmed_s, ingest.pacing)
        self.callers = Callers(auth, planner, agents, agents_at)
        self.answers = Answers(planner, agents, state, self.streams, on_report, deliveries=deliveries or Deliveries())
        self._ingest = ingest
        self._auth = auth
        self._unconfirmed_s = unconfirmed_s

    def open(self) -> None:
        """Begin to answer agents."""
        self.streams.open()

    def close(self) -> None:
        """End the streams and answer agents no more."""
        self.streams.close()

    def changing(self, changes: Changes) -> None:
        """Take what has changed, before plans are made of it: tell those agents that know an address of who has it."""
        self.answers.changing(changes)
        self.streams.forget(changes.addresses)

    def forget(self, addresses: Set[str]) -> None:
        """Tell those agents that know these addresses to ask again."""
        self.streams.forget(addresses)

    def publish(self, nodes: Set[str]) -> Set[str]:
        """Stream the plans of these nodes again; returns those that have a stream."""
        return self.streams.publish(nodes)

    def keep(self, nodes: Set[str]) -> None:
        """Forget what other nodes have sent and were told."""
        self.callers.requests.keep(nodes)
        self.callers.statuses.keep(nodes)
        self.answers.lookups.told.keep(nodes)
        self.answers.lookups.asked.keep(nodes)
        self.answers.client_halves.keep(nodes)
        self.answers.moved.keep(nodes)
        self.streams.switchboard.budgets.keep(nodes)
        self._ingest.said.keep(nodes)
        self._ingest.rows.keep(nodes)

    async def serve(self) -> None:
        """Answer agents until cancelled."""
        self.open()
        try:
            await asyncio.Event().wait()
        finally:
            self.close()

    def runner(self, metrics: Callable[[], bytes] = bytes, shutdown_timeout: float = 2.0) -> web.AppRunner:
        """Return what answers. `metrics`: writes what /metrics answers; `shutdown_timeout`: in s."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes([
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", partial(self._get_metrics, metrics)),
            web.get("/v1/nodes/{node}/plan", self._plan),
            web.post("/v1/nodes/{node}/status", self._status),
            web.post("/v1/nodes/{node}/sli", self._sli),
            web.post("/v1/identities", self._identities),
            web.post("/v1/remote-join", self._remote_join),
        ])  # fmt: skip
        logger = logging.Logger("aiohttp.server", logging.DEBUG)  # of this directory alone
        logger.parent = logging.getLogger(logger.name)
        logger.addFilter(self._is_worth_a_line)
        return web.AppRunner(
            app,
            access_log=None,
            logger=logger,
            shutdown_timeout=shutdown_timeout,
            auto_decompress=False,
            keepalive_timeout=IDLE_S,
            max_headers=MAX_HEADERS,
        )

    def _nodes_at(self, address: str) -> frozenset[str]:
        return self.answers.nodes_at(address)

    def _is_worth_a_line(self, record: logging.LogRecord) -> bool:
        """Count what is no HTTP at all. Keep that, and who has gone before he was answered, out of the log, which any
        stranger could fill by it."""
        kind = (record.exc_info[0] if record.exc_info else None) or type(None)
        no_http, gone = issubclass(kind, _NO_HTTP), issubclass(kind, ConnectionError)
        if no_http:
            self.requests["unknown", HTTPStatus.BAD_REQUEST] += 1
        return record.levelno >= logging.WARNING and not no_http and not gone

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn refusals into answers and count them; what is not foreseen gets aiohttp's 500."""
        try:
            response = await handler(request)
        except Refused as error:
            again = {"Retry-After": f"{math.ceil(error.retry_after_s)}"} if error.retry_after_s else None
            response = web.json_response({"error": str(error)}, status=error.status, headers=again)
        except StoreError as error:
            if not error.reason:  # else the store's thread has told it once
                log.error("%s", error)
            why = "the store cannot be written: see the operator's log"
            again = {"Retry-After": f"{STORE_RETRY_S}"}
            response = web.json_response({"error": why}, status=503, headers=again)
        except web.HTTPException as error:
            response = web.json_response({"error": error.reason}, status=error.status)
        route = request.match_info.route.resource
        self.requests[route.canonical if route else "unknown", response.status] += 1
        return response

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")  # that we answer is all: a restart in an outage of the API server serves nobody

    async def _readyz(self, _: web.Request) -> web.Response:
        if not self.streams.is_open:
            return web.Response(text="starting, or another one leads", status=503)
        age_s = self._unconfirmed_s()
        return web.Response(text=f"ok, but the API server has been silent for {age_s} s"[:64] if age_s else "ok")

    async def _get_metrics(self, metrics: Callable[[], bytes], request: web.Request) -> web.Response:
        await self._auth.metrics_reader(_token(request), _source(request))
        self._connections.known(request.transport, f"reader {_source(request)}")
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        caller = await self._caller(request)
        self.streams.admit(caller.node)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        try:
            changes = request.headers.get(wire.CHANGES_HEADER) == wire.CHANGES
            await self.streams.follow(caller, partial(_in_pieces, response.write), changes=changes)
        except (ConnectionError, TimeoutError):
            log.info("plan stream of %s broke", caller.node)
            if request.transport is not None:
                request.transport.abort()  # else what was not read would be waited for, and kept
        return response

    async def _status(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        self.callers.admit_status(caller.node, _size(request, MAX_STATUS_BYTES))
        self.answers.status(caller.node, await _body(request, AgentStatus, MAX_STATUS_BYTES))
        return web.Response(status=204)

    async def _identities(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        return _json(await self.answers.identities(caller.node, await _body(request, IdentityRequest)))

    async def _remote_join(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        return _json(await self.answers.remote_join(caller.node, await _body(request, RemoteJoinMessage)))

    async def _sli(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        size = _size(request, MAX_BODY_BYTES)
        self._ingest.admit(caller.node, size)
        batch = await _body(request, SliBatch, MAX_BODY_BYTES)
        answer = await self._ingest.take(caller.node, batch, size)
        return _json(answer, status=200 if answer.expected > batch.sequence else 409)

    async def _caller(self, request: web.Request) -> Caller:
        """Return the agent that calls. Raises Refused: also 503 while agents are not answered."""
        node = request.match_info.get("node", "")
        caller = await self.callers.agent(_token(request), node, _source(request))
        self._connections.known(request.transport, f"node {caller.node}")
        if not self.streams.is_open:
            raise Refused(503, "the operator is starting or ending: try again")
        return caller


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def _source(request: web.Request) -> str:
    """Return the address that a request comes from; IPv4 as IPv4, whatever the socket."""
    return (request.remote or "").removeprefix("::ffff:")


def _size(request: web.Request, limit: int) -> int:
    """Return how many bytes a body has at most: as many as is said, if anything is."""
    said = request.content_length
    return limit if said is None else min(said, limit)


async def _body(request: web.Request, kind: type[T], limit: int = MAX_SMALL_BODY) -> T:
    """Decode a request's body. Raises Refused: 413 for its size, 400 with the field's path for its content, or 426 if
    its agent speaks another version, which keeps its counts then."""
    try:
        async with asyncio.timeout(BODY_S):
            body = await _read(request, limit)
    except TimeoutError as error:
        raise Refused(408, f"the body has not come within {BODY_S:g} s") from error
    except ConnectionError as error:
        raise Refused(400, "the connection ended before the body") from error  # which nobody reads
    except web.RequestPayloadError as error:  # such as one whose chunks are none
        raise Refused(400, f"the body cannot be read: {' '.join(str(error).split())}") from error
    try:
        return msgspec.json.decode(body, type=kind)
    except wire.UNREADABLE as error:
        if wire.differs(theirs := request.headers.get(wire.HEADER)):
            why = f"wire version {theirs or 'none'}, this operator speaks {wire.VERSION}: upgrade the older of both"
            raise Refused(426, f"{why} ({error})") from error
        raise Refused(400, str(error)) from error


async def _read(request: web.Request, limit: int) -> bytearray:
    """Return a request's body, which `request.read` would keep for as long as the agent's connection is idle. Agents
    compress none, and aiohttp takes for ever to decompress some."""
    if encoding := request.headers.get("Content-Encoding", ""):
        raise Refused(400, f"Content-Encoding {encoding[:40]}: send the body as it is")
    if (request.content_length or 0) > limit:
        raise Refused(413, f"{request.content_length} bytes: at most {limit}")
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > limit:
            raise Refused(413, f"{len(body)} bytes or more: at most {limit}")
    return body


async def _in_pieces(write: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
    """Write data bit by bit: TLS keeps room for the largest that was ever written at once, of each connection."""
    for begin in range(0, len(data), PIECE):
        await write(data[begin : begin + PIECE])


def _json(answer: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), status=status, content_type="application/json")
