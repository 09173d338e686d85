"""Handshakes over a pair of namespaces: those that open or fail, what watches packets, and what records say of them."""

import contextlib
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.kernel.packets import VARIANTS, PacketPrograms, Place
from latencyprobe_agent.signals.table import HANDSHAKES_TC
from latencyprobe_agent.vocabulary.records import ConnectOutcome, HandshakeFlags, HandshakeMethod, Role
from tests.support.waiting import wait_until
from tests.truth.netns import INTERFACE, Namespace
from tests.truth.recorder import OBJECTS

S, MS, US = 1_000_000_000, 1_000_000, 1_000
RESENT_NS = 900 * MS  # a SYN and a SYN-ACK are sent again after a second, in ticks
CLIENT, SERVER = Role.CLIENT, Role.SERVER
KERNEL, TC = HandshakeMethod.KERNEL, HandshakeMethod.TC
IS_SYN, IS_SYNACK, IS_ACK = (f"tcp flags & (fin | syn | rst | ack) == {flags}" for flags in ("syn", "syn | ack", "ack"))


@contextlib.contextmanager
def at_packets(
    namespace: Namespace, port: int = 0, *variants: str, pod: bool = False, timeout_ns: int = 130 * S
) -> Iterator[PacketPrograms]:
    """The tc method at a namespace's interface, by these variants and no other; none named: what the kernel has."""
    with namespace.inside():
        programs = PacketPrograms.alone(
            OBJECTS,
            HANDSHAKES_TC,
            Filter(port=port),
            places=[Place.find(INTERFACE, pod=pod)],
            timeout_ns=timeout_ns,
            ring_bytes=1 << 25,
            variants=variants or VARIANTS,
        )
    try:
        yield programs
    finally:
        with namespace.inside():
            programs.close()


def reported(programs: PacketPrograms) -> np.ndarray:
    """The next handshakes, as soon as there are any."""
    batches: list[np.ndarray] = []
    wait_until(lambda: batches.append(programs.drain()) or len(batches[-1]), "a handshake")
    return batches[-1]


def listen(namespace: Namespace, port: int, host: str = "10.99.0.2", backlog: int = 100) -> socket.socket:
    with namespace.inside():
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog
        )


def a_socket(namespace: Namespace, host: str, timeout_s: float | None = 10) -> socket.socket:
    with namespace.inside():
        made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.settimeout(timeout_s)
    return made


def dial(namespace: Namespace, port: int, host: str = "10.99.0.2") -> socket.socket:
    made = a_socket(namespace, host)
    made.connect((host, port))
    return made


def fails(namespace: Namespace, port: int, timeout_s: float | None = None, host: str = "10.99.0.2") -> None:
    """Dial what cannot be reached."""
    with a_socket(namespace, host, timeout_s) as made, pytest.raises(OSError, match=r"Errno|timed out"):
        made.connect((host, port))


def ambiguous(record: np.void) -> bool:
    return bool(record["flags"] & HandshakeFlags.AMBIGUOUS)


def outcome(record: np.void) -> str:
    return ConnectOutcome(record["outcome"]).name.lower()


def size(programs: PacketPrograms) -> int:
    return len(list(programs.map("pending").keys()))
