"""Agents that speak the directory's real protocol over TLS and measure nothing: hundreds in one process.

Each has two connections: its plan stream, of which changes are put together and checked by their digest, and one for
what it posts: its status with a new stream, when its plan is another one (as often as the directory lets it) and every
15 s or what the directory says; whose 30 addresses are, when answers are no longer valid or it is told to forget one;
and counts of 20 objectives as often as the directory tells. When it comes back is up to the real agent's `Returning`.
"""

import asyncio
import math
import random
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from operator import itemgetter

import msgspec

from benchmarks.scale_connection import Answer, Connection
from latencyprobe import wire
from latencyprobe.bounds import HISTOGRAM_INDEXES
from latencyprobe.plan import AgentStatus, IdentityAnswer, IdentityRequest, NodePlan, TargetStatus
from latencyprobe.plan_stream import PlanLine, applied
from latencyprobe.sli import Coverage, SliAnswer, SliBatch, SliRow
from latencyprobe.wire import STATUS_S
from latencyprobe_agent.directory.plans import _FIRST_RETRY_S, _LONGEST_RETRY_S
from latencyprobe_agent.directory.returning import Returning
from latencyprobe_agent.directory.uplink import _WHOLE_MINUTES_S

OBJECTIVES = 20
ADDRESSES = 30
STEADY_S = 15.0  # of a connection
PACE_S = 0.1  # of questions for identities
RETRY_S = 1.0
SHORTEST_S = 1.0  # the real agent looks at its plan once a second, each at another moment
UPLOAD_S = 5.0  # until the directory says otherwise
BUCKETS = 20  # of a row's histogram


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

    def ready(self, uid: str) -> None:
        """Take note that a pod is ready."""
        self.waited[uid] = time.monotonic()

    def read(self, plan: NodePlan, uids: list[str]) -> None:
        """Take note that an agent has a plan with these pods."""
        now_s = time.monotonic()
        for uid in uids:
            since_s = self.waited.pop(uid, None)
            if since_s is not None:
                self.plans_s.append(now_s - since_s)


class _Due:
    """When what is to be posted next."""

    def __init__(self) -> None:
        self._at_s: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __contains__(self, what: str) -> bool:
        """Return whether it was ever due."""
        return what in self._at_s

    def at_latest(self, what: str, in_s: float) -> None:
        """Make something due in so many seconds, unless it is earlier."""
        self._at_s[what] = min(self._at_s.get(what, math.inf), time.monotonic() + in_s)
        self._changed.set()

    async def take(self) -> str:
        """Wait for what is due first; it is no longer."""
        while True:
            what, at_s = min(self._at_s.items(), key=itemgetter(1), default=("", math.inf))
            if at_s <= (now_s := time.monotonic()):
                self._at_s[what] = math.inf
                return what
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if at_s == math.inf else at_s - now_s)


class Agent:
    """The agent of a node, until it is cancelled. `where`: host, port, whom it trusts, and its number."""

    def __init__(self, node: str, token: str, where: tuple[str, int, ssl.SSLContext, int], told: Told) -> None:
        self.plan: NodePlan | None = None
        self.streaming = False
        self._node = node
        self._where = where
        self._token = token
        self._told = told
        self._due = _Due()
        self._peers: tuple[str, ...] = ()
        self._forgotten: set[str] = set()
        self._sequence = 0
        self._reported_s = -STATUS_S
        self._returning = Returning(node)
        self._status_s = STATUS_S
        self._upload_s = UPLOAD_S
        self._minute = 0  # that was handed in

    @property
    def _path(self) -> str:
        return f"/v1/nodes/{self._node}"

    async def run(self) -> None:
        """Follow the plan and post, whatever becomes of connections."""
        posting = self._again(self._post, lambda _: random.uniform(0.5, 1.0) * RETRY_S)
        await asyncio.gather(self._again(self._follow, self._returning.pause_s), posting)

    async def _again(self, work: Callable[[Connection], Awaitable[None]], pause_s: Callable[[float], float]) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            connection, began_s = Connection(*self._where), time.monotonic()
            with suppress(OSError, EOFError, asyncio.LimitOverrunError), closing(connection):
                await work(connection)
            if time.monotonic() - began_s > STEADY_S:
                retry_s = _FIRST_RETRY_S
            await asyncio.sleep(pause_s(retry_s))
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    async def _follow(self, connection: Connection) -> None:
        await connection.open()
        self._told.asked()
        more = f"{wire.CHANGES_HEADER}: {wire.CHANGES}\r\n"
        headers = await connection.request("GET", f"{self._path}/plan", self._token, more=more)
        self._told.requests["plan", int(headers[":status"])] += 1
        if headers[":status"] != "200":
            return
        self._returning.opened()
        try:
            rest = b""
            async for chunk in connection.chunks():
                self._told.bytes_read += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(msgspec.json.decode(line, type=PlanLine))
        finally:
            self.streaming = False
            self._returning.lost()

    def _take(self, line: PlanLine) -> None:
        self._returning.told(line.return_s)
        self._status_s = max(STATUS_S, line.status_s)
        if forgotten := {*line.forget}.intersection(self._peers):
            self._forgotten |= forgotten
            self._due.at_latest("forgotten", PACE_S)
        uids: list[str] = []
        if line.plan is not None:
            self.plan, uids = line.plan, [pod.uid for pod in line.plan.pods]
        elif line.change is not None:
            plan = applied(self.plan, line.change)
            if plan is None:
                self._told.differ += 1
                raise EOFError("not the operator's plan")
            self.plan, uids = plan, [pod.uid for pod in line.change.pods]
        if line.plan is None and line.change is None:
            return
        self._told.read(self.plan, uids)
        pause_s = min(STATUS_S, self._returning.spread_s / 2)  # as `directory/reporting`
        paused_s = self._reported_s + pause_s - time.monotonic() if self.streaming else 0.0
        self._due.at_latest("status", max(random.uniform(0, SHORTEST_S), paused_s))
        if not self.streaming:  # whatever was known may have changed meanwhile
            self.streaming = True
            self._due.at_latest("identities", PACE_S)
        if "sli" not in self._due:
            self._due.at_latest("sli", random.uniform(0, UPLOAD_S))

    async def _post(self, connection: Connection) -> None:
        """Post what is due, one after the other, as long as the directory is not to be left alone."""
        posts = {
            "status": self._report,
            "identities": self._identify,
            "forgotten": self._ask_again,
            "sli": self._hand_in,
        }
        while True:
            what = await self._due.take()
            again_s = RETRY_S
            try:
                if not self._returning.held():
                    again_s = await posts[what](connection)
            except (OSError, EOFError) as error:
                self._returning.failed(f"no answer: {error}")
                raise
            finally:
                self._due.at_latest(what, again_s * random.uniform(0.9, 1.0))

    async def _ask(self, connection: Connection, what: str, path: str, document: msgspec.Struct) -> Answer:
        await connection.open()
        self._told.asked()
        answer = await connection.post(path, self._token, msgspec.json.encode(document))
        self._told.requests[what, answer.status] += 1
        return answer

    async def _report(self, connection: Connection) -> float:
        await self._ask(connection, "status", f"{self._path}/status", self._status())
        self._reported_s = time.monotonic()
        return self._status_s

    async def _identify(self, connection: Connection) -> float:
        self._peers = self._endpoints()
        answer = await self._ask(connection, "identities", "/v1/identities", IdentityRequest(self._peers))
        return msgspec.json.decode(answer.body, type=IdentityAnswer).valid_s if answer.status == 200 else RETRY_S

    async def _ask_again(self, connection: Connection) -> float:
        """Ask for what was to be forgotten, and for nothing else, as `directory/peers`."""
        addresses, self._forgotten = tuple(sorted(self._forgotten)), set()
        if addresses:
            await self._ask(connection, "identities", "/v1/identities", IdentityRequest(addresses))
        return math.inf

    async def _hand_in(self, connection: Connection) -> float:
        minute = int(time.time()) // 60 * 60
        if self._upload_s >= _WHOLE_MINUTES_S:  # as `directory/uplink`
            minute -= 60
            if minute == self._minute:
                return self._upload_s
        batch = SliBatch(f"agent of {self._node}", self._sequence, self._rows(minute))
        answer = await self._ask(connection, "sli", f"{self._path}/sli", batch)
        self._told.answers_s.append(answer.s)
        if answer.status not in (200, 409):
            return UPLOAD_S
        said = msgspec.json.decode(answer.body, type=SliAnswer)
        self._sequence, self._minute = said.expected, minute
        self._upload_s = said.next_upload_s or UPLOAD_S
        return self._upload_s

    def _status(self) -> AgentStatus:
        assert self.plan is not None
        targets = tuple(TargetStatus(t.id, 1000, {"pingpong": 1000}, {}) for t in self.plan.targets)
        return AgentStatus(
            instance=self._node,
            boot_id="boot",
            version="0",
            generation=self.plan.generation,
            variants={"send": "tp_btf"},
            error="",
            targets=targets,
            lost={},
        )

    def _endpoints(self) -> tuple[str, ...]:
        assert self.plan is not None
        found = {endpoint.address for target in self.plan.targets for endpoint in target.endpoints}
        return tuple(sorted(found)[:ADDRESSES])

    def _rows(self, minute: int) -> tuple[SliRow, ...]:
        assert self.plan is not None
        targets = {target.id: target for target in self.plan.targets}
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
