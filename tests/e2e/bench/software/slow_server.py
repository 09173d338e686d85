"""A server that is slow for one reason, in real life a different one each: `slow_server.py PORT REASON [ARGUMENT]`.

A request is a line, its answer a line of 500 bytes. One thread per connection reads, is slow, and answers.

  disk FILE       makes sure that the order is on the disk, as a database does
  pages FILE      looks something up in a mapped file, as a search engine does
  compute MS      computes for so long, of CPU time
  lock MS         needs a lock that another thread holds for so long
  two_writes      writes its headers and its body by a call each
  ask HOST:PORT   asks another service
  export MIB      answers with so much
  queue MS        serves one connection at a time, each request for so long; the others wait to be accepted
  nothing         is not slow: what asks it is, or what lies between
"""

import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

ANSWER = b"x" * 499 + b"\n"
PIECE = 16 << 10  # that a client reads at a time
SLICES = 32  # of the mapped file: each look-up goes on where the one before ended

Slow = Callable[[], object]


def disk(path: str) -> Slow:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def commit() -> None:
        os.write(log, ANSWER)
        os.fsync(log)

    return commit


def pages(path: str) -> Slow:
    with Path(path).open("rb") as file:
        index = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    turns = count()
    return lambda: index[next(turns) % SLICES * (len(index) // SLICES)]


def compute(ms: str) -> Slow:
    def burn() -> None:
        until_s = time.thread_time() + int(ms) / 1000
        while time.thread_time() < until_s:
            pass

    return burn


def lock(ms: str) -> Slow:
    ours, asked, taken = threading.Lock(), threading.Semaphore(0), threading.Semaphore(0)

    def keep_house() -> None:
        while True:
            asked.acquire()
            with ours:
                taken.release()
                time.sleep(int(ms) / 1000)

    def use() -> None:
        asked.release()
        taken.acquire()
        with ours:
            pass

    threading.Thread(target=keep_house, name="housekeeper", daemon=True).start()
    return use


def ask(address: str) -> Slow:
    host, _, port = address.partition(":")
    mine = threading.local()

    def call() -> None:
        if not hasattr(mine, "connection"):
            mine.connection = connected(host, int(port))
        question(mine.connection)

    return call


def queue(ms: str) -> Slow:
    return lambda: time.sleep(int(ms) / 1000)


def nothing() -> Slow:
    return lambda: None


def connected(host: str, port: int, receive_bytes: int = 0) -> socket.socket:
    """`receive_bytes`: of the receive buffer, which must be there before the handshake tells of it."""
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.connect((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def question(connection: socket.socket, each: Callable[[], object] = lambda: None) -> None:
    """Ask for one answer and read all of it, line end included. `each`: done before each read."""
    connection.sendall(b"?\n")
    part = b""
    while not part.endswith(b"\n"):
        each()
        part = connection.recv(PIECE)
        if not part:
            raise ConnectionError("closed within an answer")


REASONS: dict[str, Callable[..., Slow]] = {
    "disk": disk,
    "pages": pages,
    "compute": compute,
    "lock": lock,
    "ask": ask,
    "queue": queue,
    "nothing": nothing,
    "two_writes": nothing,
    "export": lambda _: nothing(),
}


def serve(connection: socket.socket, slow: Slow, parts: tuple[bytes, ...]) -> None:
    with connection:
        while connection.recv(4096):
            slow()
            for part in parts:
                connection.sendall(part)


def answer(reason: str, *arguments: str) -> tuple[bytes, ...]:
    """What is written by a call each."""
    if reason == "export":
        return (b"x" * ((int(arguments[0]) << 20) - 1) + b"\n",)
    return (ANSWER[:100], ANSWER[100:]) if reason == "two_writes" else (ANSWER,)


def main(port: str, reason: str, *arguments: str) -> None:
    slow, parts = REASONS[reason](*arguments), answer(reason, *arguments)
    with socket.create_server(("0.0.0.0", int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            if reason != "two_writes":
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if reason == "queue":
                serve(connection, slow, parts)
            else:
                threading.Thread(target=serve, args=(connection, slow, parts), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
