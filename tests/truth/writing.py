"""One connection whose answers a test writes piece by piece, with stamps around each, and what its record says."""

import socket
import time

import numpy as np

from latencyprobe_agent.vocabulary.records import HeldBound, Role, UnsentReason
from tests.truth.netns import Namespace
from tests.truth.session import Session
from tests.truth.sides import of_role
from tests.truth.workload import NO_PAUSE_NS

ADDRESS = "10.99.0.2"
ANSWER = 700  # bytes of a small write


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Turns:
    """One connection whose server answers as the test says. `room`: the client's receive buffer, 0: the kernel's."""

    def __init__(
        self, session: Session, port: int, ends: tuple[Namespace, Namespace], host: str = ADDRESS, room: int = 0
    ) -> None:
        self.session = session
        session.measure(port, pause_ns=NO_PAUSE_NS)
        with ends[1].inside():
            listener = socket.create_server((host, port))
        with listener, ends[0].inside():
            self.client = socket.socket()
            if room:
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            self.client.connect((host, port))
            self.server, _ = listener.accept()
        self.before_ns = self.after_ns = 0  # around the last call that wrote of the answer

    def set(self, option: int, value: int) -> None:
        """Set an option of TCP at the server's socket."""
        self.server.setsockopt(socket.IPPROTO_TCP, option, value)

    def ask(self) -> None:
        """The client asks, and the server has read it."""
        self.client.sendall(b"request")
        assert self.server.recv(64) == b"request"

    def write(self, size: int, flags: int = 0) -> None:
        """The server writes of its answer, without waiting for room."""
        self.before_ns = now_ns()
        assert self.server.send(bytes(size), flags | socket.MSG_DONTWAIT) == size
        self.after_ns = now_ns()

    def read(self, size: int) -> int:
        """The client reads the answer. Return when it had all of it."""
        while size:
            size -= len(self.client.recv(size))
        return now_ns()

    def plain(self) -> None:
        """One RPC of one small write each."""
        self.ask()
        self.server.sendall(b"x")
        self.read(1)

    def half(self, size: int) -> np.void:
        """The server's half whose answer had so many bytes, when the connection has ended."""
        self.plain()  # which ends the exchange before it
        self.client.close()
        assert self.server.recv(1) == b""
        self.server.close()
        records = of_role(self.session.records_of_closed(2), Role.SERVER)
        (half,) = records[records["response_bytes"] == size]
        print(f"{UnsentReason(half['unsent_reason']).name}, {half['unsent_bytes']} bytes", end=" ")
        print(f"held for {half['held_ns'] / 1e6:.3f} ms, {HeldBound(half['held_bound']).name}")
        return half


def assert_held(half: np.void, reason: UnsentReason, size: int, least_ns: int, most_ns: int) -> None:
    """Exactly this label, so many bytes, and as long as the stamps of the test allow."""
    assert UnsentReason(half["unsent_reason"]) is reason
    assert half["unsent_bytes"] == size
    assert HeldBound(half["held_bound"]) is HeldBound.EXACT
    assert least_ns - 1000 <= half["held_ns"] <= most_ns, "RACK has microseconds"


def assert_not_held(half: np.void) -> None:
    assert (half["unsent_reason"], half["unsent_bytes"], half["held_ns"], half["held_bound"]) == (0, 0, 0, 0)
