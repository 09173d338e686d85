"""Asks a waiting server (waiting_server.py); knows when each act began and ended and in which thread."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.causes import ON_CPU, PREEMPTED, RUN_QUEUE, THROTTLED
from latencyprobe.plan import WaitPolicy
from latencyprobe_agent.signals.waits import causes
from latencyprobe_agent.vocabulary.records import WaitKind
from tests.support.waiting import wait_until
from tests.truth.recorder import Recorder

MS = 1_000_000
NO_CALLS = (ON_CPU, RUN_QUEUE, PREEMPTED, THROTTLED)
SLOW = WaitPolicy(slow_call_ns=20 * MS, slow_offcpu_ns=20 * MS, stacks=True)
BOTH = ("syscalls", "offcpu")


class Told(NamedTuple):
    """When an act began and ended (ns of the boot clock), and its thread."""

    began_ns: int
    ended_ns: int
    tid: int


@dataclass
class Asked:
    """A connection to a server."""

    socket: socket.socket

    def ask(self, act: str) -> Told:
        """One request, one answer."""
        self.say(act)
        return self.hear()

    def say(self, act: str) -> None:
        """Send a request."""
        self.socket.sendall(f"{act}\n".encode())

    def hear(self) -> Told:
        """Receive an answer."""
        return Told(*map(int, self.socket.recv(4096).split()))


@dataclass
class Server:
    """A server that runs. `pid`: its process."""

    port: int
    process: subprocess.Popen[bytes]
    asked: list[Asked] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def connect(self) -> Asked:
        """A new connection."""
        end = socket.create_connection(("127.0.0.1", self.port))
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.asked.append(Asked(end))
        return self.asked[-1]


@contextmanager
def waiting_server(
    port: int, *options: str, cgroups: tuple[Path, ...] = (), program: Path | None = None
) -> Iterator[Server]:
    """Run one for the block, in these folders of cgroups. `program`: in place of waiting_server.py."""

    command = [*([program] if program else [sys.executable, "-m", "tests.truth.waiting_server"]), str(port), *options]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        for folder in cgroups:
            (folder / "cgroup.procs").write_text(str(process.pid))
        wait_until(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, "a server", unready=OSError)
        server = Server(port, process)
        yield server
        for one in server.asked:
            one.socket.close()
    finally:
        process.kill()
        process.wait()


def split_of(waits: Recorder, told: Told) -> np.void:
    """The record of the request that was told of; its parts add up to its time, which is that of the act and little
    more."""

    def its(records: NDArray[np.void]) -> NDArray[np.void]:
        meanwhile = (records["start_ns"] <= told.began_ns) & (records["flow"]["boot_ns"] >= told.ended_ns)
        return records[meanwhile]

    of_thread = {"kind": WaitKind.SERVED, "owner_tid": told.tid}
    waits.until(lambda evidence: len(its(evidence.rec)), "the request's record", **of_thread)
    (record,) = its(waits.records(**of_thread))
    assert_adds_up(record)
    return record


def assert_adds_up(record: np.void) -> None:
    lasted = int(record["flow"]["boot_ns"]) - int(record["start_ns"])
    assert lasted == sum(int(record[part]) for part in ("on_cpu_ns", "ready_ns", "blocked_ns"))
    assert int(record["blocked_ns"]) == int(record["call_ns"].sum()) + int(record["other_ns"])
    assert record["throttled_ns"] + record["preempted_ns"] <= record["ready_ns"]
    assert lasted == sum(ns for *_, ns in causes(record))


def wait_of(waits: Recorder, told: Told) -> np.void:
    """The wait of the thread during the act that was told of in which it was blocked longest."""
    found = waits.until(len, "a wait", kind=WaitKind.ONE, owner_tid=told.tid).rec
    during = found[(found["flow"]["boot_ns"] > told.began_ns) & (found["start_ns"] < told.ended_ns)]
    return during[during["blocked_ns"].argmax()]


def blocked(records: NDArray[np.void]) -> NDArray[np.void]:
    """Those in which the thread was blocked, rather than waiting for a processor."""
    return records[records["blocked_ns"] > records["ready_ns"]]


def blocked_ms(record: np.void) -> dict[str, float]:
    """Where the time of a request went, in ms."""
    return {name: ns / MS for name, _, ns in causes(record)}


def mostly_ms(record: np.void, call: str) -> float:
    """Return how long a request was blocked, mostly in this call, or would have been, had the machine run it at once:
    who is late to wait waits less."""
    ms = blocked_ms(record)
    calls = [one for one in ms if one not in NO_CALLS]
    assert max(calls, key=ms.__getitem__) == call, ms
    return ms[call] + (int(record["ready_ns"]) + int(record["on_cpu_ns"])) / MS
