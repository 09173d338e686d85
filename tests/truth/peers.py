"""A client and a server socket of this process, driven call by call; for tests of what one connection does."""

import ctypes
import os
import socket
import struct

from tests.support.waiting import wait_until


class Peers:
    """One connection on loopback. Both ends are plain sockets: `client`, `server`."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, dial: str = "", protocol: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        dialled = socket.AF_INET6 if ":" in (dial or host) else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen()
            self.client = socket.socket(dialled, socket.SOCK_STREAM, protocol)
            self.client.connect((dial or host, port))
            self.server, _ = listener.accept()
        for end in (self.client, self.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def turn(self, request: bytes = b"request", response: bytes = b"response") -> None:
        """One RPC."""
        self.send(self.client, request)
        self.send(self.server, response)

    def send(self, sender: socket.socket, *pieces: bytes, read: tuple[int, ...] = ()) -> None:
        """One message: written in `pieces`; read in steps of `read` bytes, then the rest.

        All of it is there before it is read: a piece is what the test says, not what came in time.
        """
        receiver = self.server if sender is self.client else self.client
        for piece in pieces:
            sender.sendall(piece)
        message = b"".join(pieces)
        wait_until(lambda: len(receiver.recv(len(message), socket.MSG_PEEK)) == len(message), "all came")
        steps = [*read, len(message) - sum(read)]
        assert b"".join(receiver.recv(step) for step in steps if step) == message

    def close(self) -> None:
        """Close both ends, the client's first."""
        self.client.close()
        self.server.close()


def disconnect(end: socket.socket) -> None:
    """Take a socket off its connection, which a RST ends; it may connect again."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(end.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def reset(end: socket.socket) -> None:
    """Close by a RST."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
