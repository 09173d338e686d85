"""A server that waits as it is asked to, in a process of its own: `python -m tests.truth.waiting_server PORT`.

A request is one line, `ACT ARGUMENT`; the answer one line with when the act began and ended, in ns of the boot clock,
and its thread. One thread per connection reads, acts and answers, but for the acts that say otherwise.
"""

import asyncio
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

_pool = ThreadPoolExecutor(1)


def boot_ns() -> int:
    """Now."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _burn(seconds: str) -> None:
    until = time.thread_time() + float(seconds)
    while time.thread_time() < until:
        pass


def _fsync(path: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"x")
    os.fsync(fd)
    os.close(fd)


def _fault(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[0] == 0
    os.close(fd)


def _lock(seconds: str) -> None:
    """Wait for a lock that another thread holds."""
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(float(seconds))

    threading.Thread(target=hold).start()
    held.wait()
    with lock:
        pass


def _both(path: str) -> None:
    _fsync(path)
    time.sleep(0.05)


def _signals(seconds: str) -> None:
    """Sleep under signals, each of which interrupts the call."""
    signals = subprocess.Popen(["sh", "-c", f"for i in 1 2 3 4 5; do kill -USR1 {os.getpid()}; sleep 0.005; done"])
    until = time.monotonic() + float(seconds)
    while (left := until - time.monotonic()) > 0:
        time.sleep(left)
    signals.wait()


def _threads(n: str) -> None:
    """Threads that each wait in a call once and end."""
    for _ in range(int(n) // 50):
        several = [threading.Thread(target=time.sleep, args=(0.0002,)) for _ in range(50)]
        for one in several:
            one.start()
        for one in several:
            one.join()


def _naps(seconds: str) -> None:
    """One call after another, for so long."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        time.sleep(0.001)


def _polls(seconds: str) -> None:
    """The same, in another call."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        select.select([], [], [], 0.001)


def _touch(megabytes: str) -> None:
    """Use memory, more than the process may have: the kernel has to find some."""
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        for _ in range(int(megabytes)):
            file.write(bytes(1 << 20))
            file.flush()


ACTS: dict[str, Callable[[str], object]] = {
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "burn": _burn,
    "fsync": _fsync,
    "fault": _fault,
    "lock": _lock,
    "both": _both,
    "signals": _signals,
    "threads": _threads,
    "touch": _touch,
    "naps": _naps,
    "polls": _polls,
    "pool": lambda path: _pool.submit(_fsync, path).result(),
    "nothing": lambda _: None,
}


def answer(line: str) -> bytes:
    """Do what a request asks for."""
    act, _, argument = line.partition(" ")
    began = boot_ns()
    ACTS[act](argument)
    return f"{began} {boot_ns()} {threading.get_native_id()}\n".encode()


def serve(connection: socket.socket) -> None:
    """Answer the requests of one connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(ConnectionError), connection:
        while line := connection.recv(4096).decode().strip():
            if line.startswith("exec"):
                os.execv("/bin/sleep", ["sleep", "3600"])  # from a thread that is not the first
            if line.startswith("handed"):  # another thread answers
                _pool.submit(lambda line=line: connection.sendall(answer(line.partition(" ")[2]))).result()
            else:
                connection.sendall(answer(line))


async def _asynchronous(port: int) -> None:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).decode().strip():
            began = boot_ns()
            await asyncio.sleep(float(line.partition(" ")[2]))
            writer.write(f"{began} {boot_ns()} {threading.get_native_id()}\n".encode())

    server = await asyncio.start_server(one, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    port = int(sys.argv[1])
    if sys.argv[2:] == ["async"]:
        asyncio.run(_asynchronous(port))
    with socket.create_server(("127.0.0.1", port)) as listener:
        print("ready", flush=True)
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
