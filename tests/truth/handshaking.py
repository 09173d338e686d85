"""Handshakes over a pair of namespaces: those that open or fail, who watches them, and what records say of them."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import workload
from netns import INTERFACE, Namespace

from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.packets import VARIANTS, PacketPrograms, Place
from latencyprobe_agent.kernel.records import HANDSHAKE, ConnectOutcome, HandshakeFlags, HandshakeMethod, Role
from latencyprobe_agent.signals.table import HANDSHAKES_TC

OBJECTS = Path(__file__).parents[2] / "build" / "bpf"
S, MS, US = 1_000_000_000, 1_000_000, 1_000
RESENT_NS = 900 * MS  # a SYN and a SYN-ACK are sent again after a second, in ticks
CLIENT, SERVER = Role.CLIENT, Role.SERVER
KERNEL, TC = HandshakeMethod.KERNEL, HandshakeMethod.TC
ONCE = "numgen inc mod 1000000 == 0"  # the first packet that comes to this part of a rule
IS_SYN, IS_SYNACK, IS_ACK = (f"tcp flags & (fin | syn | rst | ack) == {flags}" for flags in ("syn", "syn | ack", "ack"))


class Watch:
    """Both methods at work, the packets' at each end, and what they report of one port."""

    def __init__(self, port: int, kernel: EvidencePrograms, tc: Sequence[PacketPrograms]) -> None:
        self.kernel = kernel
        self.tc = tc
        self._port = port
        self._batches = [np.empty(0, HANDSHAKE)]

    def records(self, role: Role | None = None, method: HandshakeMethod | None = None) -> np.ndarray:
        """What was reported so far."""
        for programs in (self.kernel, *self.tc):
            while len(batch := programs.drain()):
                flow = batch["flow"]
                self._batches.append(batch[(flow["local_port"] == self._port) | (flow["peer_port"] == self._port)])
        records = np.concatenate(self._batches)
        if role is not None:
            records = records[records["flow"]["role"] == role]
        return records if method is None else records[records["method"] == method]

    def one(self, role: Role, method: HandshakeMethod) -> np.void:
        """The one handshake that this end and method reports, as soon as it does."""
        workload.wait_until(lambda: len(self.records(role, method)), f"a handshake: {role!r}, {method!r}")
        records = self.records(role, method)
        assert 1 == len(records)
        return records[0]


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
    workload.wait_until(lambda: batches.append(programs.drain()) or len(batches[-1]), "a handshake")
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
    return len(list(programs.map("going_on").keys()))
