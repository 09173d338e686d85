"""Network namespaces joined by veth pairs, for tests in one process: a socket stays in the namespace that made it."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Namespace:
    """A namespace with one end of a veth pair, `lp0`: 10.99.0.N and fd99::N."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.ipv4, self.ipv6 = f"10.99.0.{number}", f"fd99::{number}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread makes its sockets here, and reads this namespace's /proc/thread-self/net."""
        libc = ctypes.CDLL(None, use_errno=True)
        with (
            Path("/proc/thread-self/ns/net").open("rb") as before,
            Path("/run/netns", self.name).open("rb") as inside,
        ):
            assert not libc.setns(inside.fileno(), CLONE_NEWNET), os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert not libc.setns(before.fileno(), CLONE_NEWNET), os.strerror(ctypes.get_errno())

    def socket(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
        """A socket of this namespace, that gives up after 10 s."""
        with self.entered():
            made = socket.socket(family, kind, protocol)
        made.settimeout(10)
        return made

    def run(self, *words: str, text: str | None = None) -> str:
        """Run a command here and return what it printed; `text` is its input."""
        command = ["ip", "netns", "exec", self.name, *words]
        return subprocess.run(command, check=True, text=True, input=text, stdout=subprocess.PIPE).stdout

    def counter(self, name: str) -> int:
        """A counter of `nstat`, such as TcpRetransSegs."""
        table = {line.split()[0]: line.split()[1] for line in self.run("nstat", "-asz", name).splitlines()[1:]}
        return int(table[name])


@contextmanager
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """Two namespaces, joined; gone at the end, whatever happened."""
    ends = tuple(Namespace(f"lp-{os.getpid()}-{number}", number) for number in (1, 2))
    try:
        for end in ends:
            ip("netns", "add", end.name)
        ip("link", "add", "lp0", "netns", ends[0].name, "type", "veth", "peer", "lp0", "netns", ends[1].name)
        for end in ends:
            ip("-n", end.name, "addr", "add", f"{end.ipv4}/24", "dev", "lp0")
            ip("-n", end.name, "addr", "add", f"{end.ipv6}/64", "dev", "lp0", "nodad")
            ip("-n", end.name, "link", "set", "lo", "up")
            ip("-n", end.name, "link", "set", "lp0", "up")
        yield ends[0], ends[1]
    finally:
        for end in ends:
            subprocess.run(["ip", "netns", "del", end.name], check=False, stderr=subprocess.DEVNULL)
