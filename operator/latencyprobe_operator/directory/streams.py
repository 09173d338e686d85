"""The plan streams of the agents: plans, remote join and heartbeats, one stream per node.

There are none until `open`, so that a fresh operator never streams an empty plan to nodes that measure.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Set
from contextlib import suppress
from itertools import islice

import msgspec

from latencyprobe.plan import Identity, NodePlan
from latencyprobe.plan_stream import Differences, PlanLine
from latencyprobe.wire import STATUS_S
from latencyprobe_operator.directory.auth import Caller
from latencyprobe_operator.directory.holders import Holders
from latencyprobe_operator.directory.limits import MAX_STREAMS, Refused
from latencyprobe_operator.directory.pacing import Pacing
from latencyprobe_operator.directory.remote_join import Switchboard
from latencyprobe_operator.plan.planner import Planner

HEARTBEAT_S = 15.0
AT_ONCE = 50  # streams that write before others run
WRITE_TIMEOUT_S = 10.0  # an agent that does not read its stream for so long has lost it
SLOWEST_PER_S = 256 << 10  # bytes: a long line has so much more time
LONG = 256 << 10  # bytes of a line: of these few are in memory at once, whoever does not read them
LONG_AT_ONCE = 8  # of 8 MB each: plan/room.py

Write = Callable[[bytes], Awaitable[None]]


class PlanStreams:
    """The streams by node. `nodes_at`: the nodes of an address's pods, for the remote join; `unconfirmed_s`: for how
    long the API server has not confirmed what plans are made of; `pacing`: over what time agents come back when all
    streams end, and how often they report."""

    def __init__(
        self,
        planner: Planner,
        nodes_at: Callable[[str], Set[str]],
        unconfirmed_s: Callable[[], int] = lambda: 0,
        pacing: Pacing | None = None,
    ) -> None:
        self.is_open = False
        self.switchboard = Switchboard(nodes_at, self._wake)
        self.of: dict[str, asyncio.Event] = {}  # the event that wakes each stream
        self._planner = planner
        self._unconfirmed_s = unconfirmed_s
        self.pacing = pacing or Pacing()
        self._differences = Differences()
        self._holders = Holders(lambda: self.pacing.known_s)
        self._forget: dict[str, set[str]] = {}
        self._long = asyncio.Semaphore(LONG_AT_ONCE)

    def open(self) -> None:
        """Begin: the first plans are made."""
        self.is_open = True

    def close(self) -> None:
        """End all: the agents come back to the next operator."""
        self.is_open = False
        for node in self.of:
            self._wake(node)

    def publish(self, nodes: Set[str]) -> Set[str]:
        """Stream the plans of these nodes again, some at a time; returns those that have a stream."""
        reading = nodes & self.of.keys()
        self._wake_some(iter(sorted(reading)))
        return reading

    def answered(self, node: str, found: Iterable[Identity]) -> bool:
        """Take note of what a node's agent was answered; returns whether all of it is remembered, so that it is told to
        forget what changes, as long as it has a stream."""
        owned: list[str] = []
        others: list[str] = []
        for one in found:
            (owned if one.pod or one.service else others).append(one.address)
        return self._holders.answered(node, owned, others)

    def forget(self, addresses: Set[str]) -> None:
        """Tell those agents that know these addresses to ask again. One without a stream forgets all with its next."""
        for node, theirs in self._holders.take(addresses).items():
            if node in self.of:
                self._forget.setdefault(node, set()).update(theirs)
                self._wake(node)

    def admit(self, node: str) -> None:
        """Let a node's stream begin. Raises Refused when there are too many."""
        if len(self.of) >= MAX_STREAMS and node not in self.of:
            raise Refused(503, f"{MAX_STREAMS} plan streams are open: try again later")

    async def follow(self, caller: Caller, write: Write, *, changes: bool = False) -> None:
        """Write lines until the token ends (the agent returns at once, with the next), a newer stream of the node
        begins, or all are closed. `changes`: the agent takes changes of the plan before. Raises TimeoutError when the
        agent does not read, and what `write` raises."""
        wake = asyncio.Event()
        if (older := self.of.get(caller.node)) is not None:
            older.set()  # it sees that it is not the node's stream any more and ends
        self.of[caller.node] = wake
        self._forget.pop(caller.node, None)
        self.switchboard.connected(caller.node)
        try:
            sent: NodePlan | None = None
            while self.is_open and time.monotonic() < caller.until_s and self.of.get(caller.node) is wake:
                wake.clear()
                plan = self._planner.plan_of(caller.node)
                line = self._line(caller.node, sent, plan, changes=changes)
                sent = plan
                await self._send(line, write)
                await _woken(wake, min(HEARTBEAT_S, max(0.0, caller.until_s - time.monotonic())))
            if self.is_open and self.of.get(caller.node) is wake:  # this one stream alone ends
                await self._send(PlanLine(unconfirmed_s=self._unconfirmed_s()), write)
        finally:
            if self.of.get(caller.node) is wake:
                del self.of[caller.node]
                self.switchboard.disconnected(caller.node)
                self._forget.pop(caller.node, None)

    async def _send(self, line: PlanLine, write: Write) -> None:
        """Write a line; one that is long when its turn has come, and heartbeats until then."""
        if len(data := _encoded(line)) <= LONG:
            await _written(data, write)
            return
        del data
        turn = asyncio.ensure_future(self._long.acquire())
        try:
            while not (await asyncio.wait((turn,), timeout=HEARTBEAT_S))[0]:
                await _written(_encoded(PlanLine(return_s=line.return_s, status_s=line.status_s)), write)
            await _written(_encoded(line), write)
        finally:
            if not turn.cancel():
                self._long.release()

    def _line(self, node: str, sent: NodePlan | None, plan: NodePlan, *, changes: bool) -> PlanLine:
        """Return the next line of a stream on which `sent` was the last plan."""
        same = sent is not None and plan.generation == sent.generation
        change = self._differences.between(sent, plan) if sent is not None and changes and not same else None
        return PlanLine(
            plan=None if same or change else plan,
            remote_join=self.switchboard.take(node),
            unconfirmed_s=self._unconfirmed_s(),
            change=change,
            forget=tuple(sorted(self._forget.pop(node, ()))),
            return_s=round(self.pacing.return_s, 3),
            status_s=0.0 if (pause_s := round(self.pacing.status_s, 3)) == STATUS_S else pause_s,
        )

    def _wake_some(self, nodes: Iterator[str]) -> None:
        """Wake some streams, and the others once these have written: else all others would wait."""
        some = list(islice(nodes, AT_ONCE))
        for node in some:
            self._wake(node)
        if len(some) == AT_ONCE:
            asyncio.get_running_loop().call_soon(self._wake_some, nodes)

    def _wake(self, node: str) -> None:
        if node in self.of:
            self.of[node].set()


def _encoded(line: PlanLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


async def _written(data: bytes, write: Write) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S + len(data) / SLOWEST_PER_S):
        await write(data)


async def _woken(wake: asyncio.Event, at_most_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            await wake.wait()
