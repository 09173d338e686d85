"""Plays scripts (scripts.py) on loopback: both ends of hundreds of connections in this thread, step by step.

A step is over when its bytes have arrived and are acknowledged, or its FIN or RST was seen: so the order of events is
the script's. Each is logged between two readings of the boot clock. What then is known to each end are the events of
`turn_events.py`.

Linux delays the acknowledgement of what nobody reads, and of a FIN, by 40 ms or more. So scripts are played between
addresses at which it delays none (`stage`), but for those that need a late acknowledgement of a FIN.
"""

import gc
import heapq
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fcntl import ioctl

from latencyprobe_agent.vocabulary.records import Role
from tests.truth.netns import Namespace
from tests.truth.played import OTHER, Moved, Played
from tests.truth.scripts import IDLE_NS, MS, PAUSE_NS, Do, Script, Step
from tests.truth.turn_events import Event, Kind

CLIENT, SERVER = Role.CLIENT, Role.SERVER
BYTES = {CLIENT: Kind.A, SERVER: Kind.B}  # that this end sends
POLL_NS = MS // 4
DEADLINE_NS = 20_000 * MS
FLUSH_NS = IDLE_NS // 2
DELAYED_ACK_NS = 30 * MS  # at most; after 40 ms at the earliest an end acknowledges a FIN by itself
QUICK, DELAYED = "127.1.0", "127.0.0"  # networks of both ends
ADDRESSES = 200  # of the server, from 2 on: ports of closed connections are not free again at once

SO_COOKIE = 57  # asm-generic/socket.h
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h
SIOCOUTQ, FIONREAD = 0x5411, 0x541B  # linux/sockios.h, asm-generic/ioctls.h
CLOSED, CLOSE_WAIT = 7, 8  # enum tcp_state
INFO = struct.Struct("=B67xI28xI")  # linux/tcp.h, struct tcp_info: state, rtt (us), total_retrans
NOTHING = bytes(4)


def now_ns() -> int:
    """The clock of the kernel's stamps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class _Connection:
    """One connection that plays its script. `run` yields the times at which it wants to go on."""

    def __init__(self, script: Script, listener: socket.socket, address: str) -> None:
        begin_ns = now_ns()
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        client.bind((address.rpartition(".")[0] + ".1", 0))
        client.connect((address, listener.getsockname()[1]))
        server, peer = listener.accept()
        self.sockets: dict[Role, socket.socket] = {CLIENT: client, SERVER: server}
        cookies = {}
        for role, end in self.sockets.items():
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
            cookies[role] = int.from_bytes(end.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little")
        self.played = Played(script, peer[1], address, cookies, begin_ns)
        self._moved_ns = begin_ns
        self._unread = {CLIENT: 0, SERVER: 0}
        self._sent = {CLIENT: 0, SERVER: 0}
        self._closed_ns = {CLIENT: 0, SERVER: 0}
        self._dead: set[Role] = set()  # their sockets have no more to tell

    def run(self) -> Iterator[int]:
        """Play it to the end."""
        last_ns = now_ns()
        for step in self.played.script.steps:
            if step.do is Do.WAIT:
                yield now_ns() + step.ns
            else:
                yield from getattr(self, f"_{step.do.name.lower()}")(step)
            took_ns = now_ns() - last_ns - step.ns
            self.played.stalled |= took_ns > PAUSE_NS // 2
            last_ns += step.ns + took_ns
        assert not self.sockets, f"script {self.played.script.seed} leaves an end open"

    def flushed(self, begin_ns: int, end_ns: int) -> None:
        """Log that idle turns were looked for."""
        if begin_ns - self._moved_ns > IDLE_NS // 2:
            for role in (CLIENT, SERVER):
                if role in self.sockets:
                    self._saw(role, Kind.FLUSH, begin_ns, end_ns)

    def _saw(self, role: Role, kind: Kind, ns: int, until_ns: int = 0, size: int = 0) -> None:
        if role not in self._dead:
            event = Event(kind, ns, until_ns or now_ns(), size, unread=self._unread[role] > 0)
            self.played.events.append((role, event))

    # -- steps

    def _send(self, step: Step) -> Iterator[int]:
        sender, end, receiver = step.end, self.sockets[step.end], OTHER[step.end]
        ns = now_ns()
        assert end.send(bytes(step.size)) == step.size
        self._moved_ns = until_ns = now_ns()
        self._saw(sender, BYTES[sender], ns, until_ns, step.size)
        self._sent[sender] += step.size
        if receiver not in self.sockets:
            yield from self._until(lambda: self._state(sender) == CLOSED, "a RST for bytes that nobody reads")
            self._saw(receiver, Kind.RESET, ns)
            self._saw(sender, Kind.RESET, ns)
            self._dead |= {sender, receiver}
            return
        expected = self._unread[receiver] + step.size
        yield from self._until(lambda: self._readable(receiver) == expected, "bytes arrive")
        self._saw(receiver, BYTES[sender], ns, size=step.size)
        self._unread[receiver] = expected
        self.played.moved.append(Moved(Do.SEND, sender, self._sent[sender], ns, until_ns, now_ns()))
        if step.read:
            yield from self._read(Step(Do.READ, receiver))
            self._quickack(receiver)
        yield from self._until(lambda: ioctl(end, SIOCOUTQ, NOTHING) == NOTHING, "bytes are acknowledged")
        self._look(sender)

    def _read(self, step: Step) -> Iterator[int]:
        size = self._unread[step.end]
        if not size:
            return
        ns = now_ns()
        assert len(self.sockets[step.end].recv(size)) == size, "acknowledged bytes are there"
        self._unread[step.end] = 0
        self._saw(step.end, Kind.READ, ns, size=size)
        self.played.moved.append(Moved(Do.READ, step.end, self._sent[OTHER[step.end]], ns, now_ns()))
        yield from ()

    def _shut(self, step: Step) -> Iterator[int]:
        ns = now_ns()
        self.sockets[step.end].shutdown(socket.SHUT_WR)
        self._saw(step.end, Kind.SHUT, ns)
        yield from self._fin_comes(step.end, ns)

    def _close(self, step: Step) -> Iterator[int]:
        end = step.end
        if end not in self.sockets:
            return
        unread = self._unread[end]
        if end not in self._dead:
            self._look(end)
        ns = now_ns()
        self.sockets.pop(end).close()
        self._closed_ns[end] = now_ns()
        self._saw(end, Kind.CLOSE, ns)
        if end in self._dead:
            return
        if unread:
            yield from self._rst_comes(end, ns)
        else:
            yield from self._fin_comes(end, ns)
            if OTHER[end] in self.sockets and not self.played.script.delayed_ack:
                self._saw(end, Kind.GONE, ns)
                self._dead.add(end)

    def _abort(self, step: Step) -> Iterator[int]:
        end = self.sockets.pop(step.end)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ns = now_ns()
        end.close()
        self._saw(step.end, Kind.ABORT, ns)
        yield from self._rst_comes(step.end, ns)

    # -- what the other end sees of it

    def _fin_comes(self, end: Role, ns: int) -> Iterator[int]:
        other = OTHER[end]
        if other in self._dead:
            return
        if other in self.sockets:
            yield from self._until(lambda: self._state(other) >= CLOSED, "a FIN arrives")
        elif now_ns() - self._closed_ns[other] > DELAYED_ACK_NS:
            self.played.doubtful = "the first FIN may have been acknowledged before the second came"
        self._saw(other, Kind.FIN, ns)

    def _rst_comes(self, end: Role, ns: int) -> Iterator[int]:
        other = OTHER[end]
        if other in self.sockets:
            yield from self._until(lambda: self._state(other) == CLOSED, "a RST arrives")
        self._saw(other, Kind.RESET, ns)
        self._dead |= {end, other}

    def _until(self, condition: Callable[[], bool], what: str) -> Iterator[int]:
        end_ns = now_ns() + DEADLINE_NS
        while not condition():
            assert now_ns() < end_ns, f"not within 20 s: {what}\n{self.played.script}\n{self.played.timeline()}"
            yield now_ns() + POLL_NS

    def _readable(self, end: Role) -> int:
        return int.from_bytes(ioctl(self.sockets[end], FIONREAD, NOTHING), sys.byteorder)

    def _quickack(self, end: Role) -> None:
        self.sockets[end].setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _state(self, end: Role) -> int:
        return self.sockets[end].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]

    def _look(self, end: Role) -> None:
        info = self.sockets[end].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
        _, rtt_us, retransmits = INFO.unpack(info)
        self.played.rtt_ns = max(self.played.rtt_ns, rtt_us * 1000)
        if retransmits:
            self.played.doubtful = "segments were sent again"


@contextmanager
def stage() -> Iterator[None]:
    """Let this thread make sockets in a network namespace of its own, at whose QUICK addresses no ACK is delayed."""
    namespace = Namespace(f"lp-{os.getpid()}-stage")
    try:
        words = f"local {QUICK}.0/24 dev lo table local quickack 1"
        namespace.run("ip", "route", "add", *words.split())
        with namespace.inside():
            yield
    finally:
        namespace.delete()


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
    due: list[tuple[int, int, _Connection, Iterator[int]]] = []
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
            connection = _Connection(script, listener, f"{network}.{2 + number % ADDRESSES}")
            heapq.heappush(due, (now_ns(), number, connection, connection.run()))
        elif due:
            _sleep_until(min(due[0][0], flush_ns))
        else:
            return


def _sleep_until(ns: int) -> None:
    if (left_ns := ns - now_ns()) > 0:
        time.sleep(left_ns / 1e9)
