"""Processes of different cgroups that dial one server in turn, always from the same port: address, port and descriptor
change hands as soon as the connection before was reset.

The truth is in the length of each request, which says who sent it, and in when each connection began and ended.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SENDERS = 2
LENGTHS = 1000  # of requests of one sender, in turn
SPAN = np.dtype([("began_ns", "u8"), ("ended_ns", "u8")])

_SERVE = """
import contextlib, socket, sys
sys.stdin.read(1)  # in its cgroup, from now on: the sockets that it accepts are of where it listens
with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=16) as listener:
    print("listens", flush=True)
    while True:
        accepted = listener.accept()[0]
        with accepted, contextlib.suppress(ConnectionResetError):
            accepted.sendall(b"y" * len(accepted.recv(1 << 16)))
            accepted.recv(1)  # the client ends it
"""
_DIAL = """
import array, os, socket, struct, sys, time
port, own_port, number, connections, others, file = *map(int, sys.argv[1:6]), sys.argv[6]
at_once = struct.pack("ii", 1, 0)
spans, clock = array.array("Q"), time.CLOCK_BOOTTIME
for nth in range(number, connections, 2):
    sys.stdin.buffer.raw.read(1)
    began = time.clock_gettime_ns(clock)
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        made.bind(("127.0.0.1", own_port))
        made.connect(("127.0.0.1", port))
        length = 2 * (1 + nth % 1000) + number
        made.sendall(b"x" * length)
        assert len(made.recv(length, socket.MSG_WAITALL)) == length
    spans.extend((began, time.clock_gettime_ns(clock)))
    os.write(others, b"x")
with open(file, "wb") as out:
    spans.tofile(out)
"""


def length_of(nth: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how long the request of each connection is, and its answer, in bytes. `nth`: i8[n], the connections."""
    return 2 * (1 + nth % LENGTHS) + nth % SENDERS


@contextmanager
def serving(port: int, cgroup: Path) -> Iterator[None]:
    """A process in a cgroup that answers on this port of loopback, one connection at a time."""
    command = [sys.executable, "-c", _SERVE, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            (cgroup / "cgroup.procs").write_text(str(server.pid))
            server.stdin.write(b"x")
            server.stdin.close()
            assert server.stdout.readline() == b"listens\n"
            yield
        finally:
            server.kill()


def dial(port: int, own_port: int, connections: int, cgroups: Sequence[Path], folder: Path) -> NDArray[np.void]:
    """Open so many connections, each after the other, by a process of each of two cgroups in turn; fail if one was not
    answered. Return when each began and ended (boot time)."""
    pipes = [os.pipe() for _ in range(SENDERS)]
    with ExitStack() as stack:
        dialers = []
        for number, cgroup in enumerate(cgroups):
            others, file = pipes[1 - number][1], folder / f"spans-{number}"
            words = [sys.executable, "-c", _DIAL, *map(str, (port, own_port, number, connections, others, file))]
            dialers.append(stack.enter_context(subprocess.Popen(words, stdin=pipes[number][0], pass_fds=[others])))
            (cgroup / "cgroup.procs").write_text(str(dialers[-1].pid))
        os.write(pipes[0][1], b"x")
        assert [0] * SENDERS == [dialer.wait() for dialer in dialers]
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)
    spans = np.empty(connections, SPAN)
    for number in range(SENDERS):
        spans[number::SENDERS] = np.fromfile(folder / f"spans-{number}", SPAN)
    return spans
