"""Keeps `ClusterState` equal to the API server: list, then watch, for ever, one `Informer` per kind.

Traps it answers: a watch that is silent but not dead (the server sends a bookmark each minute; after 110 s without a
byte we list again, for an etcd that was restored counts from before, and a watch from a version that is to come is
silent until then), 410 Gone (list again), 429 and storms of errors (growing delays), lists in pages, objects that we
cannot decode (counted, skipped, never fatal).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

import aiohttp
import msgspec

from latencyprobe.errors import ClusterError
from latencyprobe.lines import Lines, LineTooLong
from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.api import CONNECT_TIMEOUT_S, Api, ApiError, Backoff
from latencyprobe_operator.cluster.decoding import Trimmed
from latencyprobe_operator.cluster.loops import Loops
from latencyprobe_operator.cluster.nesting import decoded
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.pages import PAGE_BYTES, pages

log = logging.getLogger(__name__)

PATHS = {
    "namespaces": "/api/v1/namespaces",
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
}
SILENCE_S = 110.0  # the API server's bookmarks come each minute; the first of a watch was seen to take over 90 s
_SILENT = 0.75  # of it when a read has timed out: what came was noted later than it came
STALE_S = 130.0  # two bookmarks and a reconnect: from here on what we know is of a time, and says so
ENDS_AT_ONCE_S = 1.0
MAX_OBJECT_BYTES = PAGE_BYTES  # etcd stores at most 1.5 MiB; Go's JSON has six bytes for each `<` of it


class Sink(Protocol):
    """What an informer writes to: `ClusterState`."""

    def replace(self, kind: str, items: list[Trimmed]) -> None: ...  # noqa: D102 - see ClusterState
    def put(self, kind: str, item: Trimmed) -> None: ...  # noqa: D102 - see ClusterState
    def drop(self, kind: str, key: Key) -> None: ...  # noqa: D102 - see ClusterState
    def lacks(self, kind: str) -> bool: ...  # noqa: D102 - see ClusterState


class Gone(Exception):  # noqa: N818 - the API server's own word
    """The resource version is too old: list again."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ErrorObject(msgspec.Struct):
    code: int = 0
    message: str = ""


class Signs:
    """What metrics and readiness read of an informer: lists and watches begun, events, objects that could not be
    decoded, and for how long the API server has sent nothing."""

    def __init__(self) -> None:
        self.lists = 0
        self.watches = 0
        self.events = 0
        self.undecodable = 0
        self._last_s: float | None = None

    @property
    def silent_s(self) -> float:
        """Seconds since the API server last sent anything, be it a bookmark; 0 before anything was asked for."""
        return 0.0 if self._last_s is None else time.monotonic() - self._last_s

    def begin(self) -> None:
        """Count silence from now, unless it is counted already."""
        if self._last_s is None:
            self.received()

    def received(self) -> None:
        """Take note that the API server sent something."""
        self._last_s = time.monotonic()


class Informer:
    """One kind's list and watch. `changed` is called after each batch that went into the sink."""

    def __init__(
        self, api: Api, kind: str, sink: Sink, changed: Callable[[], None], *, silence_s: float = SILENCE_S
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.signs = Signs()
        self._api = api
        self._sink = sink
        self._changed = changed
        self._silence_s = silence_s
        self._version = ""

    async def run(self) -> NoReturn:
        """List, then watch until cancelled. What fails is logged and tried again, later each time."""
        self._version = ""
        self.signs.begin()
        backoff = Backoff()
        while True:
            try:
                if not self._version:
                    await self._list()
                began = time.monotonic()
                await self._watch(backoff)
                if time.monotonic() - began < ENDS_AT_ONCE_S:
                    raise ClusterError("the API server ends each watch at once")
                if self._sink.lacks(self.kind):  # half an hour to an hour after it was listed
                    self._version = ""
            except Gone:
                self._version = ""
            except (msgspec.DecodeError, LineTooLong) as error:
                self._version = ""
                log.warning("%s: not an answer of an API server: %s", self.kind, error)
                await backoff.wait(ClusterError(str(error)))
            except ClusterError as error:
                silent = self.signs.silent_s >= _SILENT * self._silence_s
                if silent or (isinstance(error, ApiError) and error.status == 410):
                    self._version = ""
                log.warning("%s: %s", self.kind, error)
                await backoff.wait(error)

    async def _list(self) -> None:
        items: list[Trimmed] = []
        version = ""
        async for page in pages(self._api, PATHS[self.kind]):
            self.signs.received()
            items.extend(item for raw in page.items or () if (item := self._decoded(raw)) is not None)
            version = page.metadata.resource_version
            del page
        self.signs.lists += 1
        self._version = version
        self._sink.replace(self.kind, items)
        self.synced.set()
        self._changed()

    async def _watch(self, backoff: Backoff) -> None:
        """Read events until the server ends the watch, which is normal, or the line falls silent."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=self._silence_s)
        async with self._api.stream("GET", PATHS[self.kind], query=query, timeout=timeout) as answer:
            self.signs.received()  # it answers, if only that nothing happens
            self.signs.watches += 1
            lines = Lines(MAX_OBJECT_BYTES)
            async for piece in answer.content.iter_any():
                self.signs.received()
                ended = lines.add(piece)
                for line in filter(None, ended):
                    self._event(line)
                    backoff.reset()
                if ended:
                    self._changed()

    def _event(self, line: bytes) -> None:
        event = decoded(line, _Event)
        if event.type == "ERROR":
            error = msgspec.json.decode(event.object, type=_ErrorObject)
            if error.code == 410:
                raise Gone(error.message)
            raise ApiError(error.code, f"watch of {self.kind}: {error.message}")
        meta = decoding.metadata(event.object)
        self.signs.events += 1
        if event.type == "DELETED":
            self._sink.drop(self.kind, (meta.namespace, meta.name))
        elif event.type in ("ADDED", "MODIFIED") and (item := self._decoded(event.object)) is not None:
            self._sink.put(self.kind, item)
        self._version = meta.resource_version

    def _decoded(self, raw: msgspec.Raw) -> Trimmed | None:
        try:
            return decoding.DECODERS[self.kind](raw)
        except msgspec.ValidationError as error:
            self.signs.undecodable += 1
            log.warning("%s: an object that we cannot read is left out: %s", self.kind, error)
            return None


class Informers:
    """All kinds together."""

    def __init__(self, api: Api, sink: Sink, changed: Callable[[], None]) -> None:
        self.of: Mapping[str, Informer] = {kind: Informer(api, kind, sink, changed) for kind in PATHS}

    async def run(self, loops: Loops) -> None:
        """Run all until cancelled. One that fails lists anew."""
        await asyncio.gather(*(loops.insist(f"informer-{kind}", informer.run) for kind, informer in self.of.items()))

    async def synced(self) -> None:
        """Wait until each kind was listed once."""
        for informer in self.of.values():
            await informer.synced.wait()

    def unconfirmed_s(self) -> int:
        """Return for how many s the API server has not confirmed what we know, 0 while that is no longer than usual."""
        silent_s = max(informer.signs.silent_s for informer in self.of.values())
        return int(silent_s) if silent_s > STALE_S else 0
