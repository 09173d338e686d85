"""Services as processes (service.py), each asking the next, and their own log of who was asked for whom."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port

SIZE = 8


class Asked(NamedTuple):
    """By a service, for a request that came from `peer_port`, by its own port, between two times of the boot clock."""

    peer_port: int
    own_port: int
    begin_ns: int
    end_ns: int


class Service:
    """One process. `asked`: of its log, once it has ended."""

    def __init__(
        self, how: str, wait_ms: int = 0, following: "Service | None" = None, cgroup: Path | None = None
    ) -> None:
        self.port = free_port()
        words = [Path(__file__).with_name("service.py"), how, self.port, wait_ms, following.port if following else 0]
        command = [sys.executable, *map(str, words)]
        if cgroup:
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.asked: list[Asked] = []
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout:
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.endswith("\n") and len(words := line.split()) == len(Asked._fields):
                self.asked.append(Asked(*map(int, words)))


@contextmanager
def chain(*services: tuple[str, int], cgroups: Sequence[Path | None] = ()) -> Iterator[list[Service]]:
    """The processes of a chain, the first one first. Each: how it serves, and its own part of the time in ms."""
    with ExitStack() as stack:
        found: list[Service] = []
        of_each = [*cgroups, *[None] * (len(services) - len(cgroups))]
        for (how, wait_ms), cgroup in zip(reversed(services), reversed(of_each), strict=True):
            found.insert(0, Service(how, wait_ms, found[0] if found else None, cgroup))
            stack.callback(found[0].close)
        yield found


def ask(port: int, times: int, clients: int = 1) -> None:
    """Ask a service so often by each of so many connections at once."""

    def one() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for i in range(times):
                connection.sendall(i.to_bytes(SIZE, "big"))
                assert connection.recv(SIZE) == i.to_bytes(SIZE, "big")

    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ports(services: Sequence[Service]) -> list[int]:
    return [service.port for service in services]
