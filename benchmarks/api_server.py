"""An API server that is played: lists in pages, watches with bookmarks and resource versions, the Lease, TokenReviews.

It keeps what it is given (as JSON) and tells those who watch; what the operator writes is counted by kind, and of nodes
taken. It stands in for the real one (`real_api_server.py`) in `benchmarks/scale.py`.
"""

import asyncio
import base64
import bisect
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from latencyprobe.api import API_VERSION
from latencyprobe_operator.directory.auth import NODE_CLAIM

Document = dict[str, Any]

OPERATOR, AGENTS, AGENT_ACCOUNT = "lp", "lp-agents", "latencyprobe-agent"
BOOKMARK_S = 60.0
KEPT = 50_000  # events of a kind; who watches from before them is told 410
GROUP, VERSION = API_VERSION.split("/")
_RESOURCE = {"name": "latencyprobes", "singularName": "latencyprobe", "kind": "LatencyProbe", "namespaced": True}
_DISCOVERY: dict[str, Document] = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [{"name": GROUP, "preferredVersion": {"version": VERSION}, "versions": [{"version": VERSION}]}]
    },
    "/api/v1": {"resources": []},
    f"/apis/{API_VERSION}": {"resources": [_RESOURCE | {"verbs": ["list", "watch", "patch"]}]},
}


class _Kind:
    """Objects of a kind by key, encoded, and the latest events."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], tuple[Document, bytes]] = {}
        self.events: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.watchers: set[asyncio.Queue[bytes]] = set()
        self.pages: dict[str, list[bytes]] = {}

    def tell(self, version: int, event: str, document: bytes) -> None:
        line = b'{"type":"%s","object":%s}\n' % (event.encode(), document)
        self.events.append((version, line))
        for queue in self.watchers:
            queue.put_nowait(line)


class ApiServer:
    """`writes`: so far, by what is written; leases and reviews are none. `on_ready`: called with the uid of each pod
    when it is about to be ready. `folder`: for its kubeconfig."""

    def __init__(self, folder: Path) -> None:
        self.on_ready: Callable[[str], None] = lambda _: None
        self.writes: Counter[str] = Counter()
        self._folder = folder
        self._kinds: defaultdict[str, _Kind] = defaultdict(_Kind)
        self._version = 1
        self._lease: Document = {}

    def put(self, kind: str, document: Document) -> None:
        """Add or change an object."""
        if kind == "pods":
            self.on_ready(document["metadata"]["uid"])
        self._version += 1
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(self._version)
        key = (metadata.get("namespace", ""), metadata["name"])
        known = self._kinds[kind]
        event, encoded = "MODIFIED" if key in known.objects else "ADDED", msgspec.json.encode(document)
        known.objects[key] = (document if kind == "nodes" else {}, encoded)
        known.tell(self._version, event, encoded)

    def drop(self, kind: str, document: Document) -> None:
        """Delete an object."""
        self._version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self._version)}
        self._kinds[kind].objects.pop((metadata.get("namespace", ""), metadata["name"]), None)
        self._kinds[kind].tell(self._version, "DELETED", msgspec.json.encode({**document, "metadata": metadata}))

    def labelled(self) -> int:
        """Return how many nodes must measure, by their label."""
        return sum(bool(node["metadata"].get("labels")) for node, _ in self._kinds["nodes"].objects.values())

    def token(self, node: str) -> str:
        """Return a token of a node's agent, as it vouches for it."""
        claims = msgspec.json.encode({"exp": time.time() + 86_400, "node": node})
        return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signature"

    async def change(self, work: Callable[[], object]) -> None:
        """Do what puts and drops."""
        work()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Path]:
        """Answer until the end of the block. Yields the kubeconfig of who may do everything."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        (file := self._folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        try:
            yield file
        finally:
            await runner.cleanup()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Play one request."""
        path, _, last = request.path.rpartition("/")
        if request.path in _DISCOVERY:
            return web.json_response(_DISCOVERY[request.path])
        if "/leases" in request.path:
            return await self._leases(request)
        if last == "tokenreviews":
            return await _reviewed(request)
        if request.method in ("PATCH", "POST"):
            return await self._written(request, path, last)
        if "watch" in request.query:
            return await self._watched(request, self._kinds[last])
        return self._listed(request, self._kinds[last])

    async def _leases(self, request: web.Request) -> web.Response:
        if request.method == "GET" and not self._lease:
            return web.json_response({}, status=404)
        self._lease = self._lease if request.method == "GET" else await request.json()
        return web.json_response(self._lease)

    async def _written(self, request: web.Request, path: str, last: str) -> web.Response:
        body = await request.read()
        if path.endswith("/nodes"):
            self.writes["labels of nodes"] += 1
            node = self._kinds["nodes"].objects[("", last)][0]
            labels = msgspec.json.decode(body)["metadata"]["labels"]
            node["metadata"]["labels"] = {key: value for key, value in labels.items() if value is not None}
            self.put("nodes", node)
        elif last == "status":
            self.writes["statuses"] += 1
        else:
            kind = next((k for k in ("latencyreports", "events") if k in request.path), "others")
            self.writes[{"latencyreports": "reports"}.get(kind, kind)] += 1
        return web.Response(body=body, content_type="application/json")

    def _listed(self, request: web.Request, kind: _Kind) -> web.Response:
        limit, token_ = int(request.query.get("limit", 500)), request.query.get("continue", "")
        version, _, begin = token_.partition(":")
        if not token_:
            version = str(self._version)
            kind.pages[version] = [encoded for _, (_, encoded) in sorted(kind.objects.items())]
        found, at = kind.pages[version], int(begin or 0)
        more = f"{version}:{at + limit}" if at + limit < len(found) else ""
        if not more:
            del kind.pages[version]
        metadata = msgspec.json.encode({"resourceVersion": version, "continue": more})
        items = b",".join(found[at : at + limit])
        return web.Response(body=b'{"metadata":%s,"items":[%s]}' % (metadata, items), content_type="application/json")

    async def _watched(self, request: web.Request, kind: _Kind) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or self._version)
        if len(kind.events) == KEPT and kind.events[0][0] > since + 1:
            return web.json_response({"code": 410, "message": "too old resource version"}, status=410)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        versions = [version for version, _ in kind.events]
        for _, line in list(kind.events)[bisect.bisect_right(versions, since) :]:
            queue.put_nowait(line)
        kind.watchers.add(queue)
        try:
            with suppress(ConnectionError):  # who watched has gone
                while True:
                    await response.write(await self._next(queue))
        finally:
            kind.watchers.discard(queue)
        return response

    async def _next(self, queue: asyncio.Queue[bytes]) -> bytes:
        """Return the events that have come, a bookmark after a minute without."""
        try:
            lines = [await asyncio.wait_for(queue.get(), BOOKMARK_S)]
        except TimeoutError:
            object_ = {"kind": "Bookmark", "metadata": {"resourceVersion": str(self._version)}}
            return msgspec.json.encode({"type": "BOOKMARK", "object": object_}) + b"\n"
        while not queue.empty():
            lines.append(queue.get_nowait())
        return b"".join(lines)


async def _reviewed(request: web.Request) -> web.Response:
    spec = (await request.json())["spec"]
    try:
        payload = spec["token"].split(".")[1]
        node = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["node"]
    except (IndexError, KeyError, ValueError):
        return web.json_response({"status": {"authenticated": False}})
    user = {"username": f"system:serviceaccount:{AGENTS}:{AGENT_ACCOUNT}", "extra": {NODE_CLAIM: [node]}}
    audiences = spec.get("audiences", [])
    return web.json_response({"status": {"authenticated": True, "audiences": audiences, "user": user}})
