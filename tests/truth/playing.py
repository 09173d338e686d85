"""Plays scripts (scripts.py) on loopback: both ends of hundreds of connections in this thread, step by step.

A step is over when its bytes have arrived and are acknowledged, or its FIN or RST was seen: so the order of events is
the script's. Each is logged between two readings of the boot clock. What then is known to each end are the events of
`turn_events.py`.
"""

import gc
import heapq
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from latencyprobe_agent.vocabulary.records import Role
from tests.truth.both_ends import DELAYED, QUICK, BothEnds, now_ns
from tests.truth.played import OTHER, Moved, Played
from tests.truth.scripts import IDLE_NS, MS, PAUSE_NS, Do, Script, Step
from tests.truth.turn_events import Event, Kind

CLIENT, SERVER = Role.CLIENT, Role.SERVER
BYTES = {CLIENT: Kind.A, SERVER: Kind.B}  # that this end sends
POLL_NS = MS // 4
DEADLINE_NS = 20_000 * MS
FLUSH_NS = IDLE_NS // 2
DELAYED_ACK_NS = 30 * MS  # at most; after 40 ms at the earliest an end acknowledges a FIN by itself
ADDRESSES = 200  # of the server, from 2 on: ports of closed connections are not free again at once


class Ends(Protocol):
    """What a connection is played on: `BothEnds`."""

    @property
    def port(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def cookies(self) -> dict[Role, int]: ...
    def now_ns(self) -> int: ...
    def is_open(self, end: Role) -> bool: ...
    def send(self, end: Role, size: int) -> None: ...
    def read(self, end: Role, size: int) -> None: ...
    def look(self, end: Role) -> None: ...
    def shut(self, end: Role) -> None: ...
    def close(self, end: Role) -> None: ...
    def abort(self, end: Role) -> None: ...
    def readable(self, end: Role) -> int: ...
    def is_acknowledged(self, end: Role) -> bool: ...
    def got_fin(self, end: Role) -> bool: ...
    def got_rst(self, end: Role) -> bool: ...
    def path(self, end: Role) -> tuple[int, int]: ...


class Connection:
    """One connection that plays its script. `run` yields the times at which it wants to go on."""

    def __init__(self, script: Script, ends: Ends, begin_ns: int) -> None:
        self.played = Played(script, ends.port, ends.address, ends.cookies, begin_ns)
        self._ends, self._now_ns = ends, ends.now_ns
        self._moved_ns = begin_ns
        self._unread = {CLIENT: 0, SERVER: 0}
        self._sent = {CLIENT: 0, SERVER: 0}
        self._closed_ns = {CLIENT: 0, SERVER: 0}
        self._reset: set[Role] = set()  # a RST came
        self._dead: set[Role] = set()  # their sockets have no more to tell

    def run(self) -> Iterator[int]:
        """Play it to the end."""
        last_ns = self._now_ns()
        for step in self.played.script.steps:
            if step.do is Do.WAIT:
                yield self._now_ns() + step.ns
            else:
                yield from getattr(self, f"_{step.do.name.lower()}")(step)
            took_ns = self._now_ns() - last_ns - step.ns
            self.played.stalled |= took_ns > PAUSE_NS // 2
            last_ns += step.ns + took_ns
        assert not any(map(self._ends.is_open, OTHER)), f"script {self.played.script.seed} leaves an end open"

    def flushed(self, begin_ns: int, end_ns: int) -> None:
        """Log that idle turns were looked for."""
        if begin_ns - self._moved_ns > IDLE_NS // 2:
            for role in (CLIENT, SERVER):
                if self._ends.is_open(role):
                    self._saw(role, Kind.FLUSH, begin_ns, end_ns)

    def _saw(self, role: Role, kind: Kind, ns: int, until_ns: int = 0, size: int = 0) -> None:
        if role not in self._dead:
            event = Event(kind, ns, until_ns or self._now_ns(), size, unread=self._unread[role] > 0)
            self.played.events.append((role, event))

    # -- steps

    def _send(self, step: Step) -> Iterator[int]:
        sender, receiver = step.end, OTHER[step.end]
        ns = self._now_ns()
        self._ends.send(sender, step.size)
        self._moved_ns = until_ns = self._now_ns()
        self._saw(sender, BYTES[sender], ns, until_ns, step.size)
        self._sent[sender] += step.size
        if not self._ends.is_open(receiver):
            yield from self._until(lambda: self._ends.got_rst(sender), "a RST for bytes that nobody reads")
            self._saw(receiver, Kind.RESET, ns)
            self._saw(sender, Kind.RESET, ns)
            self._reset.add(sender)
            self._dead.add(receiver)
            return
        expected = self._unread[receiver] + step.size
        yield from self._until(lambda: self._ends.readable(receiver) == expected, "bytes arrive")
        self._saw(receiver, BYTES[sender], ns, size=step.size)
        self._unread[receiver] = expected
        self.played.moved.append(Moved(Do.SEND, sender, self._sent[sender], ns, until_ns, self._now_ns()))
        if step.read:
            yield from self._read(Step(Do.READ, receiver))
        yield from self._until(lambda: self._ends.is_acknowledged(sender), "bytes are acknowledged")
        self._note_path(sender)

    def _read(self, step: Step) -> Iterator[int]:
        size = self._unread[step.end]
        if not size:
            return
        ns = self._now_ns()
        self._ends.read(step.end, size)
        self._unread[step.end] = 0
        self._saw(step.end, Kind.READ, ns, size=size)
        self.played.moved.append(Moved(Do.READ, step.end, self._sent[OTHER[step.end]], ns, self._now_ns()))
        yield from ()

    def _look(self, step: Step) -> Iterator[int]:
        assert not self._unread[step.end], "there are none"
        ns = self._now_ns()
        self._ends.look(step.end)
        self._saw(step.end, Kind.LOOK, ns)
        yield from ()

    def _shut(self, step: Step) -> Iterator[int]:
        ns = self._now_ns()
        self._ends.shut(step.end)
        self._saw(step.end, Kind.SHUT, ns)
        yield from self._fin_comes(step.end, ns)

    def _close(self, step: Step) -> Iterator[int]:
        end = step.end
        if not self._ends.is_open(end):
            return
        if end not in self._reset:
            self._note_path(end)
        ns = self._now_ns()
        self._ends.close(end)
        self._closed_ns[end] = self._now_ns()
        self._saw(end, Kind.CLOSE, ns)
        if end in self._reset:
            return
        if self._unread[end]:
            yield from self._rst_comes(end, ns)
        else:
            yield from self._fin_comes(end, ns)
            if self._ends.is_open(OTHER[end]) and not self.played.script.delayed_ack:
                self._saw(end, Kind.GONE, ns)
                self._dead.add(end)

    def _abort(self, step: Step) -> Iterator[int]:
        ns = self._now_ns()
        self._ends.abort(step.end)
        self._saw(step.end, Kind.ABORT, ns)
        yield from self._rst_comes(step.end, ns)

    # -- what the other end sees of it

    def _fin_comes(self, end: Role, ns: int) -> Iterator[int]:
        other = OTHER[end]
        if other in self._dead:
            return
        if self._ends.is_open(other):
            yield from self._until(lambda: self._ends.got_fin(other), "a FIN arrives")
        elif self._now_ns() - self._closed_ns[other] > DELAYED_ACK_NS:
            self.played.doubtful = "the first FIN may have been acknowledged before the second came"
        self._saw(other, Kind.FIN, ns)

    def _rst_comes(self, end: Role, ns: int) -> Iterator[int]:
        other = OTHER[end]
        if self._ends.is_open(other):
            yield from self._until(lambda: self._ends.got_rst(other), "a RST arrives")
        self._saw(other, Kind.RESET, ns)
        self._dead.add(end)
        (self._reset if self._ends.is_open(other) else self._dead).add(other)

    def _until(self, condition: Callable[[], bool], what: str) -> Iterator[int]:
        end_ns = self._now_ns() + DEADLINE_NS
        while not condition():
            assert self._now_ns() < end_ns, f"not within 20 s: {what}\n{self.played.script}\n{self.played.timeline()}"
            yield self._now_ns() + POLL_NS

    def _note_path(self, end: Role) -> None:
        rtt_ns, retransmits = self._ends.path(end)
        self.played.rtt_ns = max(self.played.rtt_ns, rtt_ns)
        if retransmits:
            self.played.doubtful = "segments were sent again"


def play(scripts: Iterable[Script], port: int, flush: Callable[[], None] | None, at_once: int) -> list[Played]:
    """Play scripts, `at_once` at a time, between connections to `port`. `flush` is called from time to time."""
    gc.disable()  # it would hold up hundreds of connections
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("0.0.0.0", port))
            listener.listen()
            return list(_play(scripts, listener, flush, at_once))
    finally:
        gc.enable()


def _play(
    scripts: Iterable[Script], listener: socket.socket, flush: Callable[[], None] | None, at_once: int
) -> Iterator[Played]:
    waiting = enumerate(scripts)
    due: list[tuple[int, int, Connection, Iterator[int]]] = []
    flush_ns = now_ns() + FLUSH_NS
    while True:
        if now_ns() >= flush_ns:
            if flush:
                begin_ns = now_ns()
                flush()
                for entry in due:
                    entry[2].flushed(begin_ns, now_ns())
            flush_ns = now_ns() + FLUSH_NS
        elif due and (due[0][0] <= now_ns() or len(due) == at_once):
            _, number, connection, running = due[0]
            _sleep_until(min(due[0][0], flush_ns))
            if now_ns() < due[0][0]:
                continue
            again_ns = next(running, None)
            if again_ns is None:
                heapq.heappop(due)
                yield connection.played
            else:
                heapq.heapreplace(due, (again_ns, number, connection, running))
        elif entry := next(waiting, None):
            number, script = entry
            network = DELAYED if script.delayed_ack else QUICK
            begin_ns = now_ns()
            ends = BothEnds(listener, f"{network}.{2 + number % ADDRESSES}")
            connection = Connection(script, ends, begin_ns)
            heapq.heappush(due, (now_ns(), number, connection, connection.run()))
        elif due:
            _sleep_until(min(due[0][0], flush_ns))
        else:
            return


def _sleep_until(ns: int) -> None:
    if (left_ns := ns - now_ns()) > 0:
        time.sleep(left_ns / 1e9)
