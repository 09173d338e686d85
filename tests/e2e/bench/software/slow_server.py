"""A server that is slow for one reason, in real life a different one each: `slow_server.py PORT REASON [ARGUMENT]`.

A request is a line, its answer a line of 500 bytes. One thread per connection reads, is slow, and answers.

  disk FILE       makes sure that the order is on the disk, as a database does
  pages FILE      looks something up in a mapped file, as a search engine does
  compute MS      computes for so long, of CPU time
  lock MS         needs a lock that another thread holds for so long
  two_writes      writes its headers and its body by a call each
  ask HOST:PORT   asks another service
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


def connected(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def question(connection: socket.socket) -> None:
    """Ask for one answer, and read all of it."""
    connection.sendall(b"?\n")
    missing = len(ANSWER)
    while missing:
        part = connection.recv(missing)
        if not part:
            raise ConnectionError("closed within an answer")
        missing -= len(part)


REASONS: dict[str, Callable[..., Slow]] = {"disk": disk, "pages": pages, "compute": compute, "lock": lock, "ask": ask}


def serve(connection: socket.socket, slow: Slow, parts: tuple[bytes, ...]) -> None:
    with connection:
        while connection.recv(4096):
            slow()
            for part in parts:
                connection.sendall(part)


def main(port: str, reason: str, *arguments: str) -> None:
    two = reason == "two_writes"
    slow = (lambda: None) if two else REASONS[reason](*arguments)
    parts = (ANSWER[:100], ANSWER[100:]) if two else (ANSWER,)
    with socket.create_server(("0.0.0.0", int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            if not two:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(connection, slow, parts), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
