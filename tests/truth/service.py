"""A service that answers by asking the next one, and logs whom it asked for whom: `service.py HOW PORT WAIT_MS [NEXT]`.

HOW: `threads`, one for each connection; `pool`, the next of some threads for each request, wherever it comes from;
`handed`, one thread reads and writes, another one asks; `async`, one thread for all at a time. Requests and answers are
of 8 bytes. Line by line on standard output: `ready`, then for each request PEER_PORT OWN_PORT BEGIN END: the port that
it came from, the one by which the next was asked, and around that this host's boot time in ns.
"""

import asyncio
import os
import queue
import select
import socket
import sys
import threading
import time

SIZE = 8
THREADS = 4


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def say(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())  # at once: threads share the pipe


class Asking:
    """The next service as one thread knows it: by a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._mine = threading.local()

    def ask(self, came_from: int, request: bytes) -> None:
        if not self._port:
            return
        if not hasattr(self._mine, "connection"):
            self._mine.connection = socket.create_connection(("127.0.0.1", self._port))
        connection = self._mine.connection
        begin_ns = now_ns()
        connection.sendall(request)
        assert len(connection.recv(SIZE)) == SIZE
        say(came_from, connection.getsockname()[1], begin_ns, now_ns())


def threads(listener: socket.socket, wait_s: float, following: Asking) -> None:
    def serve(connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(SIZE):
                time.sleep(wait_s)
                following.ask(connection.getpeername()[1], request)
                connection.sendall(request)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def pool(listener: socket.socket, wait_s: float, following: Asking) -> None:
    """Connections that are readable are handed round; who has one reads, asks and answers once."""
    ready: queue.Queue[socket.socket] = queue.Queue()
    idle = select.epoll()
    connections: dict[int, socket.socket] = {}

    def serve() -> None:
        while True:
            connection = ready.get()
            if request := connection.recv(SIZE):
                time.sleep(wait_s)
                following.ask(connection.getpeername()[1], request)
                connection.sendall(request)
                idle.modify(connection, select.EPOLLIN | select.EPOLLONESHOT)

    for _ in range(THREADS):
        threading.Thread(target=serve, daemon=True).start()
    idle.register(listener, select.EPOLLIN)
    while True:
        for number, _ in idle.poll():
            if number == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                idle.register(connection, select.EPOLLIN | select.EPOLLONESHOT)
            else:
                ready.put(connections[number])


def handed(listener: socket.socket, wait_s: float, following: Asking) -> None:
    to_ask: queue.Queue[tuple[int, bytes]] = queue.Queue()
    asked: queue.Queue[bytes] = queue.Queue()

    def work() -> None:
        while True:
            came_from, request = to_ask.get()
            time.sleep(wait_s)
            following.ask(came_from, request)
            asked.put(request)

    threading.Thread(target=work, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        with connection:
            while request := connection.recv(SIZE):
                to_ask.put((connection.getpeername()[1], request))
                connection.sendall(asked.get())


async def overlapping(listener: socket.socket, wait_s: float, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came_from = writer.get_extra_info("peername")[1]
        next_reader, next_writer = await asyncio.open_connection("127.0.0.1", port)
        while request := await reader.read(SIZE):
            await asyncio.sleep(wait_s)
            begin_ns = now_ns()
            next_writer.write(request)
            await next_reader.readexactly(SIZE)
            say(came_from, next_writer.get_extra_info("sockname")[1], begin_ns, now_ns())
            writer.write(request)

    async with await asyncio.start_server(serve, sock=listener) as server:
        await server.serve_forever()


def main(how: str, port: str, wait_ms: str, following: str = "0") -> None:
    listener = socket.create_server(("127.0.0.1", int(port)))
    say("ready")
    if how == "async":
        asyncio.run(overlapping(listener, int(wait_ms) / 1000, int(following)))
    else:
        {"threads": threads, "pool": pool, "handed": handed}[how](listener, int(wait_ms) / 1000, Asking(int(following)))


if __name__ == "__main__":
    main(*sys.argv[1:])
