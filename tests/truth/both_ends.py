"""Both ends of a connection on loopback as sockets of this process: what playing.py has them do, and see.

Linux delays the acknowledgement of what nobody reads, and of a FIN, by 40 ms or more. At the addresses of `stage` it
delays none.
"""

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl

from latencyprobe_agent.vocabulary.records import Role
from tests.truth.netns import Namespace

QUICK, DELAYED = "127.1.0", "127.0.0"  # networks of both ends

SO_COOKIE = 57  # asm-generic/socket.h
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h
SIOCOUTQ, FIONREAD = 0x5411, 0x541B  # linux/sockios.h, asm-generic/ioctls.h
CLOSED = 7  # enum tcp_state; beyond are those that come after the other end's FIN
INFO = struct.Struct("=B67xI28xI")  # linux/tcp.h, struct tcp_info: state, rtt (us), total_retrans
NOTHING = bytes(4)


class BothEnds:
    """An open connection. `port`: the client's; `address`: the server's; `cookies`: of both sockets."""

    def __init__(self, listener: socket.socket, address: str) -> None:
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        client.bind((address.rpartition(".")[0] + ".1", 0))
        client.connect((address, listener.getsockname()[1]))
        server, (_, self.port) = listener.accept()
        self.address = address
        self._sockets: dict[Role, socket.socket] = {Role.CLIENT: client, Role.SERVER: server}
        self.cookies = {}
        for role, end in self._sockets.items():
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
            self.cookies[role] = int.from_bytes(end.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), sys.byteorder)

    def now_ns(self) -> int:
        """The clock of the kernel's stamps."""
        return now_ns()

    def is_open(self, end: Role) -> bool:
        """Tell whether its application holds it still."""
        return end in self._sockets

    def send(self, end: Role, size: int) -> None:
        """Send so many bytes."""
        assert self._sockets[end].send(bytes(size)) == size

    def read(self, end: Role, size: int) -> None:
        """Read so many bytes, which are there."""
        assert len(self._sockets[end].recv(size)) == size
        self._sockets[end].setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def look(self, end: Role) -> None:
        """Call for bytes, of which there are none."""
        with suppress(BlockingIOError, ConnectionResetError):
            assert not self._sockets[end].recv(1)

    def shut(self, end: Role) -> None:
        """Send the FIN."""
        self._sockets[end].shutdown(socket.SHUT_WR)

    def close(self, end: Role) -> None:
        """Close it."""
        self._sockets.pop(end).close()

    def abort(self, end: Role) -> None:
        """Close it by a RST."""
        self._sockets[end].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sockets.pop(end).close()

    def readable(self, end: Role) -> int:
        """How many bytes wait to be read."""
        return int.from_bytes(ioctl(self._sockets[end], FIONREAD, NOTHING), sys.byteorder)

    def is_acknowledged(self, end: Role) -> bool:
        """Tell whether all that it sent is."""
        return ioctl(self._sockets[end], SIOCOUTQ, NOTHING) == NOTHING

    def got_fin(self, end: Role) -> bool:
        """Tell whether the other end's FIN came."""
        return self._sockets[end].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] >= CLOSED

    def got_rst(self, end: Role) -> bool:
        """Tell whether the other end's RST came."""
        return self._sockets[end].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSED

    def path(self, end: Role) -> tuple[int, int]:
        """Smoothed round trip in ns, and segments that were sent again."""
        info = self._sockets[end].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
        _, rtt_us, retransmits = INFO.unpack(info)
        return rtt_us * 1000, retransmits


def now_ns() -> int:
    """The clock of the kernel's stamps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@contextmanager
def stage() -> Iterator[None]:
    """Let this thread make sockets in a network namespace of its own, at whose QUICK addresses no ACK is delayed."""
    namespace = Namespace(f"lp-{os.getpid()}-stage")
    try:
        words = f"local {QUICK}.0/24 dev lo table local quickack 1"
        namespace.run("ip", "route", "add", *words.split())
        with namespace.inside():
            yield
    finally:
        namespace.delete()
