"""An API server whose objects change, for tests that play the time (`played_time.py`): lists and watches with resource
versions and bookmarks as etcd and kube-apiserver have them, an audit log of what is written, and its ways to fail."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import takewhile
from typing import Any, NamedTuple

from aiohttp import web

from latencyprobe_operator.cluster.informer import PATHS
from tests.latencyprobe_operator.operator_process import KINDS, ApiServer
from tests.latencyprobe_operator.played_time import Clock

BOOKMARK_S = 60.0
LISTED = {"latencyprobes", *PATHS}
Document = dict[str, Any]


class Write(NamedTuple):
    """`at_s`: by the played clock; `holder`: who had the Lease when it was carried out."""

    at_s: float
    who: str
    path: str
    holder: str
    body: Document


class Event(NamedTuple):
    version: int
    kind: str
    line: bytes


class PlayedApi(ApiServer):
    """`audit`: what was written besides the Lease; `holder`: who has that; `cut_off`: who gets no answer (by token);
    `failing`: status of all answers, or "hangs", and `failed`: how often it was that; `without_crd`: whether there is
    no kind LatencyProbe."""

    def __init__(self, clock: Clock, *probes: Document) -> None:
        super().__init__()
        self.audit: list[Write] = []
        self.holder = ""
        self.cut_off: set[str] = set()
        self.failing: int | str = 0
        self.failed: Counter[int | str] = Counter()
        self.without_crd = False
        self._clock = clock
        self._oldest = 0
        self._version = 1
        self._objects: dict[tuple[str, str, str], Document] = {}
        self._events: list[Event] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._half_open = False
        for kind, some in self.lists.items():
            for one in some:
                self.put(kind, deepcopy(one))
        for probe in probes:
            name = probe["metadata"]["namespace"]
            self.put("namespaces", {"metadata": {"name": name, "uid": name}})
            self.put("latencyprobes", probe)

    def put(self, kind: str, document: Document) -> None:
        """Make or change an object."""
        key = (kind, document["metadata"].get("namespace", ""), document["metadata"]["name"])
        self._happened(kind, "MODIFIED" if key in self._objects else "ADDED", document)
        self._objects[key] = document

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object."""
        self._happened(kind, "DELETED", self._objects.pop((kind, namespace, name)))

    def get(self, kind: str, namespace: str, name: str) -> Document:
        """Return an object as it is now."""
        return self._objects[kind, namespace, name]

    def saved(self) -> tuple[int, dict[tuple[str, str, str], Document]]:
        """Return what a snapshot of etcd has."""
        return self._version, deepcopy(self._objects)

    def restore(self, snapshot: tuple[int, dict[tuple[str, str, str], Document]]) -> None:
        """Go back to a snapshot, and so do resource versions: etcd was restored, and the API server begun anew."""
        self._version, self._objects = snapshot[0], deepcopy(snapshot[1])
        self._events.clear()
        self.end_watches()

    def forget(self) -> None:
        """Compact: no watch can go on from before now."""
        self._oldest = self._version
        self.end_watches()

    def end_watches(self, *, half_open: bool = False) -> None:
        """Tear all of them; `half_open`: so that who watches does not notice."""
        self._half_open = half_open
        for watch in self._watches:
            watch.cancel()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Play one request."""
        who = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if who in self.cut_off or self.failing == "hangs":
            self.failed["hangs"] += 1
            await asyncio.Event().wait()
        if self.failing:
            self.failed[self.failing] += 1
            return web.json_response({"message": "as the test wants"}, status=int(self.failing))
        if "/leases" in request.path:
            answer = await super().answer(request)
            if request.method != "GET" and answer.status == 200:
                self.holder = who if self.lease["spec"]["holderIdentity"] else ""
            return answer
        kind = request.path.rpartition("/")[2]
        if self.without_crd and kind == "latencyprobes":
            return web.json_response({"message": "the server could not find the requested resource"}, status=404)
        if "watch" in request.query and request.path not in KINDS:
            return await self._watched(request, kind)
        if request.method == "PATCH":
            body = await request.json()
            if not self._there(request.path):
                return web.json_response({"message": "not found"}, status=404)
            self.audit.append(Write(self._clock.s, who, request.path, self.holder, body))
            self._written(request.path, body)
            return web.json_response(body)
        if request.method == "GET" and kind in LISTED:
            items = [document for (one, *_), document in sorted(self._objects.items()) if one == kind]
            return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        return await super().answer(request)

    def _there(self, path: str) -> bool:
        """Whether there is what is to be written, or the namespace that it is to be in."""
        words = path.split("/")
        if "nodes" in words:
            return ("nodes", "", words[-1]) in self._objects
        namespace = words[words.index("namespaces") + 1]
        if path.endswith("/status"):
            return ("latencyprobes", namespace, words[-2]) in self._objects
        return ("namespaces", "", namespace) in self._objects

    def _written(self, path: str, body: Document) -> None:
        if path.endswith("/status"):
            self.statuses.append(body)
            *_, namespace, _, name, _ = path.split("/")
            self.put("latencyprobes", self.get("latencyprobes", namespace, name) | {"status": body["status"]})
        elif "/latencyreports/" in path:
            self.reports.append(body)
        elif "/nodes/" in path:
            node = self.get("nodes", "", path.rpartition("/")[2])
            labels = {key: value for key, value in body["metadata"]["labels"].items() if value is not None}
            self.put("nodes", node | {"metadata": node["metadata"] | {"labels": labels}})

    def _happened(self, kind: str, what: str, document: Document) -> None:
        self._version += 1
        document["metadata"] = document["metadata"] | {"resourceVersion": str(self._version)}
        line = json.dumps({"type": what, "object": document}).encode() + b"\n"
        self._events.append(Event(self._version, kind, line))

    async def _watched(self, request: web.Request, kind: str) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or self._version)
        if since < self._oldest:
            return web.json_response({"code": 410, "message": "too old resource version"}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        task = asyncio.create_task(self._tell(response, kind, since))
        self._watches.add(task)
        try:
            await asyncio.wait([task])
            if self._half_open:
                await asyncio.Event().wait()
        finally:
            task.cancel()
            self._watches.discard(task)
        if request.transport:
            request.transport.abort()
        return response

    async def _tell(self, response: web.StreamResponse, kind: str, since: int) -> None:
        """Send what is newer than `since`, bookmarks too: of one who is ahead nothing is."""
        told_s = self._clock.s
        while True:
            lines = list(self._newer(kind, since))
            if self._clock.s - told_s >= BOOKMARK_S and self._version >= since:
                bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}
                lines.append((self._version, json.dumps(bookmark).encode() + b"\n"))
            for version, line in lines:
                with suppress(ConnectionError):  # who watched has gone
                    await response.write(line)
                since, told_s = version, self._clock.s
            await asyncio.sleep(0.002)

    def _newer(self, kind: str, since: int) -> Iterator[tuple[int, bytes]]:
        """Yield the events of a kind after a version, and their versions."""
        newer = takewhile(lambda event: event.version > since, reversed(self._events))
        yield from ((event.version, event.line) for event in reversed([*newer]) if event.kind == kind)
