"""Connections as fast as this machine opens them, from several processes: one request and one answer on each.

The truth is what the processes count themselves: each one's exit says that all of its connections opened and closed.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

REQUEST, ANSWER = b"x" * 100, b"y" * 1000
_DIALERS = 4

_SERVE = """
import contextlib, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as listener:
    while True:
        accepted = listener.accept()[0]
        with accepted, contextlib.suppress(ConnectionResetError):
            accepted.recv(100, socket.MSG_WAITALL)
            accepted.sendall(b"y" * 1000)
            accepted.recv(1)  # the client ends it
"""
_DIAL = """
import socket, struct, sys
port, count = map(int, sys.argv[1:])
for _ in range(count):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as made:
        made.sendall(b"x" * 100)
        assert len(made.recv(1000, socket.MSG_WAITALL)) == 1000
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ports are free at once
"""


@contextmanager
def serving(port: int) -> Iterator[None]:
    """Two processes that answer on this port of loopback."""
    with socket.create_server(("127.0.0.1", port), backlog=4096) as listener:
        command = [sys.executable, "-c", _SERVE, str(listener.fileno())]
        servers = [subprocess.Popen(command, pass_fds=[listener.fileno()]) for _ in range(2)]
    try:
        yield
    finally:
        for server in servers:
            server.kill()
            server.wait()


def dial(port: int, connections: int) -> None:
    """Open so many, a multiple of the number of processes; fail if one did not open or was not answered."""
    command = [sys.executable, "-c", _DIAL, str(port), str(connections // _DIALERS)]
    dialers = [subprocess.Popen(command) for _ in range(_DIALERS)]
    assert [0] * _DIALERS == [dialer.wait() for dialer in dialers]
