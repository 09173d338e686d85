"""Remote join between agents: who asked for a half, who may answer, what goes to whose plan stream.

Memory only and bounded; every key that gets nowhere is counted with its reason.
"""

import time
from collections import Counter
from collections.abc import Callable, Generator, Set
from itertools import islice
from typing import NamedTuple

from latencyprobe.plan import Ask, RemoteJoinMessage, ServerHalf
from latencyprobe_operator.directory.limits import Bucket, ByNode

ANSWER_S = 5.0  # the agent that asked gives up after 4 s
MAX_PENDING = 20_000  # keys under way in the cluster, about 400 B each: 8 MB; 4,000 a second
MAX_QUEUED = 2_000  # keys, or halves, that wait for one node's stream: 0.6 MB
NODES_S = 2.0
MAX_NODES = 64  # that a Service's pods may be on: each of them is asked
MAX_KNOWN = 20_000  # addresses whose nodes are known; those of others are looked up again each time
ASKED_PER_S, ASKED_AT_ONCE = 3_000, 10_000  # keys that one agent asks for, whatever becomes of them
KEYS_PER_S, KEYS_AT_ONCE = 500, 2_000  # of these passed on: five LatencyProbes with the default 100 spans/s


class Pending(NamedTuple):
    """A key under way: who gets the half, who may answer, until when (s, monotonic clock)."""

    asker: str
    nodes: frozenset[str]
    until_s: float


class Budget:
    """How many keys one agent may still ask for: `asked`, whatever becomes of them, and `keys` that are passed on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.asked = Bucket(ASKED_PER_S, ASKED_AT_ONCE, clock)
        self.keys = Bucket(KEYS_PER_S, KEYS_AT_ONCE, clock)


class _Nodes:
    """The nodes of addresses, found once in NODES_S, also that there are none: a Service may have thousands of pods or
    EndpointSlices, and an agent asks for whom it likes."""

    def __init__(self, nodes_at: Callable[[str], Set[str]], clock: Callable[[], float]) -> None:
        self._nodes_at = nodes_at
        self._clock = clock
        self._known: dict[str, Set[str]] = {}
        self._since_s = clock()

    def __call__(self, address: str) -> Set[str]:
        if self._clock() - self._since_s >= NODES_S:
            self._known, self._since_s = {}, self._clock()
        found = self._known.get(address)
        if found is None:
            found = self._nodes_at(address)
            if len(self._known) < MAX_KNOWN:
                self._known[address] = found
        return found


class Switchboard:
    """Keys and halves under way. `counts`: keys by what became of them. `nodes_at`: the nodes of an address's pods;
    `wake`: called with a node for whose stream there is something to `take`. `budgets`: what each may ask for."""

    def __init__(
        self,
        nodes_at: Callable[[str], Set[str]],
        wake: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.budgets = ByNode(lambda: Budget(clock))
        self._nodes_at = _Nodes(nodes_at, clock)
        self._wake = wake
        self._clock = clock
        self._connected: set[str] = set()
        self._pending: dict[str, Pending] = {}  # in the order in which they end
        self._asks: dict[str, list[Ask]] = {}
        self._queued: Counter[str] = Counter()  # keys in them, by node
        self._halves: dict[str, list[ServerHalf]] = {}

    def connected(self, node: str) -> None:
        """Take note that a node's stream has begun; what waited for an earlier one is forgotten."""
        self.disconnected(node)
        self._connected.add(node)

    def disconnected(self, node: str) -> None:
        """Take note that a node's stream has ended; what waited for it is forgotten."""
        self._connected.discard(node)
        for queue in (self._asks, self._halves, self._queued):
            queue.pop(node, None)

    def ask(self, node: str, asks: tuple[Ask, ...]) -> Generator[None, None, dict[str, str]]:
        """Pass on an agent's questions. Return the keys that nobody will be asked for, with the reason. A `yield` is
        where others may run."""
        refused: dict[str, str] = {}
        for one in asks:
            self._expire()
            nodes, reason = self._nodes_to_ask(node, one) if self._may_ask(node, one) else (frozenset(), "too_fast")
            keys = []
            for key in one.keys:
                why = reason or self._refusal(node, key)
                if why:
                    refused[key] = why
                else:
                    self._pending[key] = Pending(node, nodes, self._clock() + ANSWER_S)
                    keys.append(key)
            for other in nodes if keys else ():
                self._asks.setdefault(other, []).append(Ask(tuple(keys), spans=one.spans))
                self._queued[other] += len(keys)
                self._wake(other)
            self.counts["asked"] += len(keys)
            yield
        self.counts.update(f"refused_{reason}" for reason in refused.values())
        return refused

    def answer(self, node: str, halves: tuple[ServerHalf, ...]) -> None:
        """Pass halves on to who asked for them. Only a node that was asked may answer, and only once."""
        self._expire()
        for half in halves:
            pending = self._pending.get(half.key)
            if pending is None or node not in pending.nodes:
                self.counts["unasked"] += 1
                continue
            del self._pending[half.key]
            queue = self._halves.setdefault(pending.asker, [])
            if pending.asker not in self._connected or len(queue) >= MAX_QUEUED:
                self.counts["undelivered"] += 1
                continue
            queue.append(half)
            self.counts["answered"] += 1
            self._wake(pending.asker)

    def take(self, node: str) -> RemoteJoinMessage | None:
        """Return what waits for a node."""
        asks, halves = self._asks.pop(node, ()), self._halves.pop(node, ())
        self._queued.pop(node, None)
        return RemoteJoinMessage(tuple(asks), tuple(halves)) if asks or halves else None

    def _may_ask(self, node: str, one: Ask) -> bool:
        """Return whether anything is looked up for a question: each counts, whatever becomes of it."""
        budget = self.budgets.of(node)
        if budget.asked.empty() or budget.keys.empty():
            return False
        budget.asked.spend(len(one.keys) or 1)
        return bool(one.keys)

    def _nodes_to_ask(self, node: str, one: Ask) -> tuple[frozenset[str], str]:
        """Return the nodes to ask for halves, or why there are none."""
        nodes = self._nodes_at(one.address)
        others = frozenset(islice((n for n in nodes if n in self._connected and n != node), MAX_NODES + 1))
        free = frozenset(other for other in others if self._queued[other] < MAX_QUEUED)
        if not nodes:
            return free, "unknown_peer"
        if nodes == {node}:
            return free, "own_node"
        if not others:
            return free, "no_agent"
        if len(others) > MAX_NODES:
            return free, "too_many_nodes"
        return free, "" if free else "busy"

    def _refusal(self, node: str, key: str) -> str:
        if key in self._pending:
            return "asked_already"
        if len(self._pending) >= MAX_PENDING:
            return "busy"
        return "" if self.budgets.of(node).keys.take() else "too_fast"

    def _expire(self) -> None:
        now = self._clock()
        while self._pending and (oldest := next(iter(self._pending.items())))[1].until_s <= now:
            del self._pending[oldest[0]]
            self.counts["unanswered"] += 1
