"""A network of two namespaces that loses what a rule says, connections over it, and the kernel's own counters of it."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.truth.netns import INTERFACE, Namespace, joined
from tests.truth.peers import reset

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
            namespace.sysctl("net.ipv4.tcp_slow_start_after_idle", 0)  # a machine that stalls makes no window smaller

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
