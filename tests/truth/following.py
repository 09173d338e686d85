"""TCP-RT between two namespaces (netns.py): connections, what is said on them, and the records of who follows them."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import numpy as np

from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.signals.table import TASKS
from latencyprobe_agent.tools.tcprt.decoded import decoded
from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.ports import Ports
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.netns import Namespace
from tests.truth.recorder import Recorder, alone

PORT = free_port()
CLIENT, SERVER, SERVER_IPV6 = "10.99.0.1", "10.99.0.2", "fd99::2"


class Followed:
    """What a recorder of tasks has, as the tool prints it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._clock = Clock()
        self.records: list[Record] = []

    def take(self) -> list[Record]:
        """All records so far."""
        self.records += decoded(self.recorder.records()[len(self.records) :], self._clock.offset_ns)
        return self.records

    def kinds(self, side: str) -> str:
        """The records so far of one side, such as RRE."""
        return "".join(record.kind for record in self.take() if record.connection.side == side)

    def until(self, side: str, kinds: str) -> list[Record]:
        """Records of one side, once they are of these kinds, in this order."""
        wait_until(lambda: self.kinds(side) == kinds, f"{kinds}, not {self.kinds(side)}")
        return [record for record in self.records if record.connection.side == side]


@contextmanager
def following() -> Iterator[Callable[..., Followed]]:
    """Follow one port, both sides of it, or others; with another ring perhaps, or options of `recorder.alone()`."""
    with ExitStack() as stack:

        def make(ports: Ports | None = None, ring: str = TASKS.ring, **options: object) -> Followed:
            bits = (ports or Ports(local=(PORT,), peer=(PORT,))).words()
            words = {np.uint32(word).tobytes(): np.uint64(value).tobytes() for word, value in bits.items()}
            recorded = alone(replace(TASKS, ring=ring), entries={"tcprt_ports": words}, **options)
            return Followed(stack.enter_context(recorded))

        yield make


def made(
    host: Namespace, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0
) -> socket.socket:
    """A socket of a host, that gives up after 10 s."""
    with host.inside():
        end = socket.socket(family, kind, protocol)
    end.settimeout(10)
    return end


@contextmanager
def connected(hosts: tuple[Namespace, Namespace], how: str = "ipv4") -> Iterator[tuple[socket.socket, socket.socket]]:
    """(client, server): a connection over the veth. `mapped`: an IPv4 client, an IPv6 server socket."""
    family = socket.AF_INET if how == "ipv4" else socket.AF_INET6
    with closing(made(hosts[1], family)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", PORT))
        listener.listen()
        with closing(made(hosts[0], socket.AF_INET6 if how == "ipv6" else socket.AF_INET)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.connect((SERVER_IPV6 if how == "ipv6" else SERVER, PORT))
            accepted, _ = listener.accept()
            with closing(accepted) as server:
                server.settimeout(10)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield client, server


def receive(end: socket.socket, size: int) -> None:
    while size:
        size -= len(end.recv(size))


def rpc(client: socket.socket, server: socket.socket, request: int = 100, response: int = 1000) -> None:
    client.sendall(bytes(request))
    receive(server, request)
    server.sendall(bytes(response))
    receive(client, response)


def not_open(host: Namespace) -> bool:
    return not host.run("ss", "-Htan", "exclude", "time-wait", "sport", f"= :{PORT}").strip()
