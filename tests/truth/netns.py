"""Two network namespaces joined by a veth pair, and sockets of this process in either; for tests of what goes between.

"client" is 10.99.0.1 and fd99::1, "server" 10.99.0.2 and fd99::2; both ends of the pair are called lp0.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000  # linux/sched.h
INTERFACE = "lp0"
ONCE = "numgen inc mod 1000000 == 0"  # in a rule: the first packet that comes to this part of it


class Namespace:
    """A network namespace that is there until `delete()`."""

    def __init__(self, name: str) -> None:
        self.name = name
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def inode(self) -> int:
        """What records know it by."""
        return Path("/run/netns", self.name).stat().st_ino

    def run(self, *words: str, given: str | None = None) -> str:
        """Run a command inside, with `given` as its input; return what it says."""
        command = ["ip", "netns", "exec", self.name, *words]
        return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let this thread make sockets here; they stay here."""
        with Path("/proc/thread-self/ns/net").open() as home, Path("/run/netns", self.name).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def filter(self, hook: str, rule: str) -> None:
        """Add an nft rule to a chain of its own at a hook of the inet family, such as `input`."""
        chain = f"chain {hook} {{ type filter hook {hook} priority 0; }}"
        self.run("nft", "-f", "-", given=f"table inet lp {{ {chain}; }}\nadd rule inet lp {hook} {rule}\n")

    def unfilter(self) -> None:
        """Take all rules away."""
        self.run("nft", "flush", "ruleset")

    @contextmanager
    def limited(self, rate: str) -> Iterator[None]:
        """Let what leaves queue up for this rate; one packet at a time goes at once. At the end the queue is thrown
        away."""
        qdisc = ["tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", rate, "burst", "1600"]
        self.run(*qdisc, "limit", "200000")
        try:
            yield
        finally:
            self.run("tc", "qdisc", "del", "dev", INTERFACE, "root")

    def sysctl(self, name: str, value: object) -> None:
        """Set a value of this namespace."""
        self.run("sysctl", "-qw", f"{name}={value}")

    def delete(self) -> None:
        """Remove it and its end of the pair."""
        subprocess.run(["ip", "netns", "del", self.name], check=True)


@contextmanager
def joined() -> Iterator[tuple[Namespace, Namespace]]:
    """Yield the namespaces of client and server."""
    made: list[Namespace] = []
    try:
        for host, side in enumerate(("client", "server"), start=1):
            made.append(Namespace(f"lp-{os.getpid()}-{side}"))
            if host == 2:
                peer = ["peer", INTERFACE, "netns", made[1].name]
                made[0].run("ip", "link", "add", INTERFACE, "type", "veth", *peer)
        for host, namespace in enumerate(made, start=1):
            namespace.run("ip", "addr", "add", f"10.99.0.{host}/24", "dev", INTERFACE)
            namespace.run("ip", "addr", "add", f"fd99::{host}/64", "dev", INTERFACE, "nodad")
            namespace.run("ip", "link", "set", INTERFACE, "up")
        yield made[0], made[1]
    finally:
        for namespace in made:
            namespace.delete()


def _enter(fd: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
