"""A network of two namespaces that loses what a rule says, connections over it, and the kernel's own counters of it."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import workload
from netns import INTERFACE, Namespace, joined
from peers import reset

from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.retransmits import reasons
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.vocabulary.records import RETRANSMIT, RetransmitKind

OBJECTS = Path(__file__).parents[2] / "build" / "bpf"
SERVER_ADDRESS = "10.99.0.2"


def counters(namespace: Namespace) -> Counter[str]:
    """The namespace's Tcp and TcpExt counters, as nstat shows them."""
    found: Counter[str] = Counter()
    with namespace.inside():
        for name in ("snmp", "netstat"):
            lines = Path("/proc/thread-self/net", name).read_text().splitlines()
            for names, values in zip(lines[::2], lines[1::2], strict=True):
                if names.startswith(("Tcp:", "TcpExt:")):
                    found.update(dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True)))
    return found


class Network:
    """Namespaces "client" and "server"; both ends use reno, segments leave one by one."""

    def __init__(self, client: Namespace, server: Namespace) -> None:
        self.client, self.server = client, server
        self._opened: list[socket.socket] = []
        for namespace in (client, server):
            namespace.run("ip", "link", "set", INTERFACE, "gso_max_segs", "1")
            namespace.sysctl("net.ipv4.tcp_congestion_control", "reno")

    def connect(
        self, port: int, host: str = SERVER_ADDRESS, listen: str = "", count: int = 1
    ) -> list[tuple[socket.socket, socket.socket]]:
        """Connected pairs of sockets (client's, server's); `listen`: address of the listener if it is not `host`."""
        with self.server.inside():
            family = socket.AF_INET6 if ":" in (listen or host) else socket.AF_INET
            listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listen or host, port))
        listener.listen(count)
        pairs = []
        with listener:
            for _ in range(count):
                with self.client.inside():
                    client = socket.create_connection((host, port), timeout=10)
                server, _ = listener.accept()
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pairs.append((client, server))
                self._opened += pairs[-1]
        return pairs

    def mend(self) -> None:
        """Lose nothing any more; end all connections at once."""
        for namespace in (self.client, self.server):
            namespace.unfilter()
        for end in self._opened:
            if end.fileno() >= 0:
                reset(end)
        self._opened.clear()


@contextmanager
def network() -> Iterator[Network]:
    """Yield a network that is taken away again."""
    with joined() as (client, server):
        made = Network(client, server)
        try:
            yield made
        finally:
            made.mend()


class Watch:
    """The programs of retransmits as a tool attaches them, and what they have recorded."""

    def __init__(self, programs: EvidencePrograms) -> None:
        self.programs = programs
        self._batches = [np.empty(0, RETRANSMIT)]
        self._draining = threading.Lock()

    def all(self) -> np.ndarray:
        """All records of the machine so far."""
        with self._draining:
            while len(batch := self.programs.drain()):
                self._batches.append(batch)
            return np.concatenate(self._batches)

    def of(self, end: Namespace | socket.socket, *kinds: RetransmitKind) -> np.ndarray:
        """Records of a namespace or of one socket; `kinds`: of these only."""
        records = self.all()
        if isinstance(end, Namespace):
            records = records[records["flow"]["netns_ino"] == end.inode]
        else:
            records = records[records["flow"]["sock_cookie"] == cookie(end)]
        return records[np.isin(records["kind"], kinds)] if kinds else records

    def one(self, end: Namespace | socket.socket, kind: RetransmitKind) -> np.void:
        """The only record of this kind of `end`, as soon as the ring gives it out."""
        workload.wait_until(lambda: len(self.of(end, kind)) > 0, f"a record of kind {kind.name}")
        (record,) = self.of(end, kind)
        return record

    def until(self, end: Namespace | socket.socket, reason: str) -> np.ndarray:
        """Records of `end`, as soon as one of them has this reason."""
        workload.wait_until(lambda: reason in reasons(self.of(end)), f"a retransmit by {reason}")
        return self.of(end)


def cookie(end: socket.socket) -> int:
    """What records know the socket by."""
    return int.from_bytes(end.getsockopt(socket.SOL_SOCKET, 57, 8), "little")  # SO_COOKIE


@contextmanager
def watching(port: int = 0, ring_bytes: int | None = None) -> Iterator[Watch]:
    """Yield a watch over retransmits; `port`: only of connections to it."""
    with EvidencePrograms.alone(OBJECTS, RETRANSMITS, Filter(port=port), ring_bytes=ring_bytes) as programs:
        yield Watch(programs)
