"""redis_client.py SLOW_MS SLOW: an application with a Redis: it writes to the primary and reads from a replica.

Meanwhile the primary sends each write to the replica, which acknowledges it: of those this client knows nothing.
"""

import socket
import sys
import time

from calls import Calls

WRITES, WAITS, READS = 300, 20, 100


class Connection:
    """One connection; each line is answered by one line, or by one value."""

    def __init__(self, host: str, calls: Calls) -> None:
        self._socket = socket.create_connection((host, 6379), timeout=60)
        self._answers = self._socket.makefile("rb")
        self._calls = calls

    def ask(self, line: str) -> str:
        with self._calls.call():
            self._socket.sendall(f"{line}\r\n".encode())
            answer = self._answers.readline()
            if answer.startswith(b"$") and answer != b"$-1\r\n":
                answer = self._answers.readline()
        return answer.decode().strip()

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def main(slow_ms: int, slow: int) -> None:
    calls = Calls()
    primary, replica = Connection("redis-primary", calls), Connection("redis-replica", calls)
    for number in range(WRITES):
        assert primary.ask(f"SET key {number}") == "+OK"
        time.sleep(0.01)
    for number in range(WAITS):  # answered when the replica has acknowledged
        primary.ask(f"SET key waits-{number}")
        assert primary.ask("WAIT 1 10000") == ":1"
    for _ in range(READS):
        assert replica.ask("GET key") == f"waits-{WAITS - 1}"
    for _ in range(slow):
        assert primary.ask(f"DEBUG SLEEP {slow_ms / 1000}") == "+OK"
    assert primary.ask("CLIENT KILL TYPE replica") == ":1"  # it comes back, and signs in anew
    time.sleep(2.5)  # idle for longer than the agent waits for more
    assert primary.ask("SET key last") == "+OK"
    assert primary.ask("WAIT 1 10000") == ":1"
    primary.close()
    replica.close()
    calls.tell()


main(int(sys.argv[1]), int(sys.argv[2]))
