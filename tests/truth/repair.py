"""TCP connections with sequence numbers of our choice, by TCP_REPAIR, and segments made by hand (linux/tcp.h)."""

import socket
import struct

TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, TCP_REPAIR_OPTIONS = 19, 20, 21, 22
REPAIR_ON, REPAIR_OFF, REPAIR_OFF_SILENTLY = 1, 0, -1  # the first off probes the peer for its window
RECV_QUEUE, SEND_QUEUE = 1, 2
MSS_OPTION, WINDOW_OPTION = 2, 3

End = tuple[socket.socket, tuple[str, int], int]  # a new socket, its address, the number of its first byte


def connection(client: End, server: End) -> tuple[socket.socket, socket.socket]:
    """Connect two sockets without a handshake; return them."""
    for (end, address, seq), (_, other, other_seq) in ((client, server), (server, client)):
        end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, REPAIR_ON)
        for queue, first in ((SEND_QUEUE, seq), (RECV_QUEUE, other_seq)):
            end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, queue)
            end.setsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ, struct.pack("I", first))
        end.bind(address)
        end.connect(other)
        agreed = struct.pack("IIII", MSS_OPTION, 1460, WINDOW_OPTION, 7 << 16 | 7)  # both windows in units of 128
        end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_OPTIONS, agreed)
    for end in (client[0], server[0]):
        end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, REPAIR_OFF)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client[0], server[0]


def next_seq(end: socket.socket, queue: int) -> int:
    """The next sequence number of an end's queue."""
    end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, REPAIR_ON)
    end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, queue)
    seq = end.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ) & 0xFFFFFFFF
    end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, REPAIR_OFF_SILENTLY)
    return seq


def segment(source: tuple[str, int], target: tuple[str, int], seq: int, ack: int, payload: bytes) -> bytes:
    """A TCP segment over IPv4 without options, with its checksum."""
    head = struct.pack("!HHIIBBHHH", source[1], target[1], seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, 5 << 4, 0x18, 500, 0, 0)
    pseudo = socket.inet_aton(source[0]) + socket.inet_aton(target[0]) + struct.pack("!BBH", 0, 6, 20 + len(payload))
    words = struct.unpack(f"!{(len(pseudo) + 20 + len(payload)) // 2}H", pseudo + head + payload)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return head[:16] + struct.pack("!H", checksum) + head[18:] + payload
