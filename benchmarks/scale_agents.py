"""Agents that speak the directory's real protocol over TLS and measure nothing: hundreds in one process.

Each has two connections: its plan stream, of which changes are put together and checked by their digest, and one for
what it posts: its status when its plan is another one (at most once a second) and every 15 s, whose 30 addresses are
every 15 s, and counts of 20 objectives as often as the directory tells.
"""

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from typing import NamedTuple

import msgspec

from benchmarks.api_server import token
from latencyprobe import wire
from latencyprobe.bounds import HISTOGRAM_INDEXES
from latencyprobe.plan import AgentStatus, IdentityRequest, NodePlan, TargetStatus
from latencyprobe.plan_stream import PlanLine, applied
from latencyprobe.sli import Coverage, SliAnswer, SliBatch, SliRow
from latencyprobe_agent.directory.plans import _FIRST_RETRY_S, _LONGEST_RETRY_S

OBJECTIVES = 20
ADDRESSES = 30
INTERVAL_S = 15.0
SHORTEST_S = 1.0  # the real agent looks at its plan once a second, each at another moment
UPLOAD_S = 5.0  # until the directory says otherwise
BUCKETS = 20  # of a row's histogram


class Answer(NamedTuple):
    status: int
    body: bytes
    s: float


class Told:
    """What all agents saw. `waited`: pods by uid and when they became ready; `plans_s`: until the agent of a pod's node
    had a plan with it; `answers_s`: of counts; `requests`: by what and status, and `at`: by second; `bytes_read`: of
    plan streams; `differ`: changes of a plan that were not the operator's."""

    def __init__(self) -> None:
        self.waited: dict[str, float] = {}
        self.plans_s: list[float] = []
        self.answers_s: list[float] = []
        self.requests: Counter[tuple[str, int]] = Counter()
        self.bytes_read = 0
        self.differ = 0
        self.at: Counter[int] = Counter()  # requests by second

    def asked(self) -> None:
        self.at[int(time.monotonic())] += 1

    def read(self, plan: NodePlan, uids: list[str]) -> None:
        """Take note that an agent has a plan with these pods."""
        now_s = time.monotonic()
        for uid in uids:
            since_s = self.waited.pop(uid, None)
            if since_s is not None:
                self.plans_s.append(now_s - since_s)


class Connection:
    """One TLS connection that speaks HTTP/1.1."""

    def __init__(self, host: str, port: int, trust: ssl.SSLContext) -> None:
        self._where = (host, port, trust)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, token_: str, body: bytes = b"", more: str = "") -> dict[str, str]:
        """Send a request and return the answer's headers, with `:status`."""
        if self._streams is None:
            host, port, trust = self._where
            self._streams = await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_}\r\n{more}"
            f"{wire.HEADER}: {wire.VERSION}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        return headers | {":status": lines[0].split()[1]}

    async def post(self, path: str, token_: str, body: bytes) -> Answer:
        """Post a document."""
        began_s = time.monotonic()
        headers = await self.request("POST", path, token_, body)
        assert self._streams is not None
        answer = await self._streams[0].readexactly(int(headers.get("content-length", 0)))
        return Answer(int(headers[":status"]), answer, time.monotonic() - began_s)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks of an answer that has no end."""
        assert self._streams is not None
        reader = self._streams[0]
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)

    def close(self) -> None:
        """Let go of the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class Agent:
    """The agent of a node, until it is cancelled."""

    def __init__(self, node: str, host: str, port: int, trust: ssl.SSLContext, told: Told) -> None:
        self.plan: NodePlan | None = None
        self.streaming = False
        self._node = f"/v1/nodes/{node}"
        self._name = node
        self._where = (host, port, trust)
        self._token = token(node)
        self._told = told
        self._changed = asyncio.Event()
        self._sequence = 0

    async def run(self) -> None:
        """Follow the plan and post, whatever becomes of connections."""
        await asyncio.gather(self._again(self._follow), self._again(self._post))

    async def _again(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            connection, began_s = Connection(*self._where), time.monotonic()
            with suppress(OSError, EOFError, asyncio.LimitOverrunError), closing(connection):
                await work(connection)
            if time.monotonic() - began_s > INTERVAL_S:
                retry_s = _FIRST_RETRY_S
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    async def _follow(self, connection: Connection) -> None:
        self._told.asked()
        headers = await connection.request(
            "GET", f"{self._node}/plan", self._token, more=f"{wire.CHANGES_HEADER}: 1\r\n"
        )
        self._told.requests["plan", int(headers[":status"])] += 1
        if headers[":status"] != "200":
            return
        try:
            rest = b""
            async for chunk in connection.chunks():
                self._told.bytes_read += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(msgspec.json.decode(line, type=PlanLine))
        finally:
            self.streaming = False

    def _take(self, line: PlanLine) -> None:
        if line.plan is not None:
            self.plan, uids = line.plan, [pod.uid for pod in line.plan.pods]
        elif line.change is not None:
            plan = applied(self.plan, line.change)
            if plan is None:
                self._told.differ += 1
                raise EOFError("not the operator's plan")
            self.plan, uids = plan, [pod.uid for pod in line.change.pods]
        else:
            return
        self.streaming = True
        self._told.read(self.plan, uids)
        self._changed.set()

    async def _post(self, connection: Connection) -> None:
        """Post what is due, one after the other."""
        while self.plan is None:
            await self._changed.wait()
        now_s = time.monotonic()
        status_s, identities_s = now_s, now_s + random.uniform(0, INTERVAL_S)
        sli_s = now_s + random.uniform(0, UPLOAD_S)
        while True:
            due_s = min(status_s, identities_s, sli_s)
            if self._changed.is_set():
                await asyncio.sleep(random.uniform(0, SHORTEST_S))
                status_s = due_s = 0.0
                self._changed.clear()
            elif due_s > (now_s := time.monotonic()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), due_s - now_s)
                continue
            now_s = time.monotonic()
            if due_s == status_s:
                await self._ask(connection, "status", f"{self._node}/status", self._status())
                status_s = now_s + INTERVAL_S
            elif due_s == identities_s:
                await self._ask(connection, "identities", "/v1/identities", IdentityRequest(self._peers()))
                identities_s = now_s + INTERVAL_S
            else:
                sli_s = now_s + await self._hand_in(connection)

    async def _ask(self, connection: Connection, what: str, path: str, document: msgspec.Struct) -> Answer:
        self._told.asked()
        answer = await connection.post(path, self._token, msgspec.json.encode(document))
        self._told.requests[what, answer.status] += 1
        return answer

    async def _hand_in(self, connection: Connection) -> float:
        batch = SliBatch(f"agent of {self._name}", self._sequence, self._rows())
        answer = await self._ask(connection, "sli", f"{self._node}/sli", batch)
        self._told.answers_s.append(answer.s)
        if answer.status not in (200, 409):
            return UPLOAD_S
        said = msgspec.json.decode(answer.body, type=SliAnswer)
        self._sequence = said.expected
        return said.next_upload_s or UPLOAD_S

    def _status(self) -> AgentStatus:
        assert self.plan is not None
        targets = tuple(TargetStatus(t.id, 1000, {"pingpong": 1000}, {}) for t in self.plan.targets)
        return AgentStatus(
            instance=self._name,
            boot_id="boot",
            version="0",
            generation=self.plan.generation,
            variants={"send": "tp_btf"},
            error="",
            targets=targets,
            lost={},
        )

    def _peers(self) -> tuple[str, ...]:
        assert self.plan is not None
        found = {endpoint.address for target in self.plan.targets for endpoint in target.endpoints}
        return tuple(sorted(found)[:ADDRESSES])

    def _rows(self) -> tuple[SliRow, ...]:
        assert self.plan is not None
        targets = {target.id: target for target in self.plan.targets}
        minute = int(time.time()) // 60 * 60
        histogram = dict.fromkeys(HISTOGRAM_INDEXES[100 : 100 + BUCKETS], 10)
        coverage = Coverage(seen=10 * BUCKETS, measured_ms=5_000)
        return tuple(
            SliRow(
                namespace=targets[o.target].namespace,
                probe=targets[o.target].probe,
                probe_uid=targets[o.target].probe_uid,
                objective=o.name,
                hash=o.hash,
                perspective=o.perspective,
                minute=minute,
                good=10 * BUCKETS - 1,
                bad=1,
                histogram=histogram,
                stage_ns={"process": 30_000_000, "send": 1_000_000},
                dominant={"process": 1},
                coverage=coverage,
            )
            for o in self.plan.objectives[:OBJECTIVES]
        )
