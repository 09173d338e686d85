"""Two ends of a connection that speak frames of HTTP/2, byte by byte as a script wants it, and log every call.

Header blocks and data are noise: nobody reads them. RFC 9113.
"""

import socket
import struct
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from random import Random

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM, END_HEADERS, PADDED, ACK = 0x1, 0x4, 0x8, 0x1
ASK = END_STREAM | END_HEADERS  # a request, or an answer, that is headers alone


class Type(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9
    PRIORITY_UPDATE = 16
    UNKNOWN = 0xBB


def frame(kind: Type, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame, its header before it."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass
class Calls:
    """Calls that moved bytes: up to which offset each did, and when it began and had returned."""

    until: list[int] = field(default_factory=list)
    began_ns: list[int] = field(default_factory=list)
    ended_ns: list[int] = field(default_factory=list)

    def note(self, count: int, began_ns: int) -> None:
        self.until.append(self.moved + count)
        self.began_ns.append(began_ns)
        self.ended_ns.append(now_ns())

    @property
    def moved(self) -> int:
        return self.until[-1] if self.until else 0

    def of_byte(self, offset: int) -> tuple[int, int]:
        """When the call that moved it began and had returned."""
        at = bisect_right(self.until, offset)
        return self.began_ns[at], self.ended_ns[at]

    def moved_by(self, offset: int) -> bool:
        """Whether all before this offset has moved."""
        return offset <= self.moved


class Way:
    """One direction: what is to be sent, and how its bytes went."""

    def __init__(self, writer: socket.socket, reader: socket.socket) -> None:
        self.writer, self.reader = writer, reader
        self.queue = bytearray()
        self.queued = 0
        self.sent, self.read = Calls(), Calls()

    def put(self, *frames: bytes) -> tuple[int, int]:
        """Queue frames; return the offsets of their first byte and behind their last."""
        begin = self.queued
        for one in frames:
            self.queue += one
            self.queued += len(one)
        return begin, self.queued

    def send(self, most: int, dice: Random) -> None:
        """One call, of one piece or of several, that may be cut short."""
        some = bytes(self.queue[:most])
        if not some:
            return
        began_ns = now_ns()
        try:
            if dice.random() < 0.5:
                count = self.writer.send(some)
            else:
                cuts = sorted({0, len(some), *(dice.randrange(len(some) + 1) for _ in range(dice.randrange(6)))})
                count = self.writer.sendmsg([some[a:b] for a, b in pairwise(cuts)] + [b""] * dice.randrange(2))
        except BlockingIOError:
            return
        self.sent.note(count, began_ns)
        del self.queue[:count]

    def skip(self, count: int) -> None:
        """Bytes were sent past the queue."""
        self.queued += count
        self.sent.note(count, now_ns())

    def receive(self, most: int, dice: Random) -> None:
        """One call; now and then a look ahead before it, with which reading begins."""
        began_ns = now_ns()
        if dice.random() < 0.1:
            try:
                self.reader.recv(most, socket.MSG_PEEK)
            except BlockingIOError:
                return
        try:
            count = len(self.reader.recv(most))
        except BlockingIOError:
            return
        if count:
            self.read.note(count, began_ns)


class Connection:
    """Both ends on this host. `asks`: from the client; `answers`: from the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        for one in (self.client, self.server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.asks, self.answers = Way(self.client, self.server), Way(self.server, self.client)

    @classmethod
    def open(cls, port: int, host: str = "127.0.0.1") -> "Connection":
        """Connect to a listener that is gone again."""
        with socket.create_server((host, port)) as listener:
            client = socket.create_connection((host, port))
            return cls(client, listener.accept()[0])

    @property
    def ways(self) -> tuple[Way, Way]:
        return self.asks, self.answers

    def greet(self) -> None:
        """Queue what both ends begin with."""
        self.asks.put(PREFACE, frame(Type.SETTINGS, 0, 0, bytes(6)))
        self.answers.put(frame(Type.SETTINGS, 0, 0, bytes(12)))

    def settle(self, dice: Random, deadline_s: float = 60) -> None:
        """Move all that is queued."""
        over = time.monotonic() + deadline_s
        while any(way.read.moved < way.queued for way in self.ways):
            assert time.monotonic() < over, "bytes do not move"
            for way in self.ways:
                way.send(1 << 20, dice)
                way.receive(1 << 20, dice)

    def close(self) -> None:
        self.client.close()
        self.server.close()


@dataclass
class Message:
    """Frames of one stream in one direction that are still to be queued, and where they lie: begin and end by frame."""

    frames: list[bytes]
    begin: int = -1
    end: int = -1
    bytes: int = 0

    def put_next(self, way: Way) -> None:
        begin, self.end = way.put(self.frames.pop(0))
        self.begin = begin if self.begin < 0 else self.begin
        self.bytes += self.end - begin

    @property
    def complete(self) -> bool:
        return not self.frames


def message(stream: int, dice: Random, *, most: int = 3000, interim: bool = False) -> Message:
    """HEADERS, of several frames, padded, or after interim ones; DATA, some of it empty; trailers."""
    frames = []
    data = [dice.randrange(most) for _ in range(dice.choice((0, 1, 1, 1, 2, 5)))]
    trailers = bool(data) and dice.random() < 0.4
    if interim:
        frames.append(frame(Type.HEADERS, END_HEADERS, stream, dice.randbytes(20)))
    frames += block(stream, dice, ends=not data)
    for n, size in enumerate(data):
        ends = n == len(data) - 1 and not trailers
        pad = PADDED if size and dice.random() < 0.1 else 0
        payload = dice.randbytes(size)
        frames.append(frame(Type.DATA, pad | (END_STREAM if ends else 0), stream, payload))
    if trailers:
        frames += block(stream, dice, ends=True)
    return Message(frames)


def block(stream: int, dice: Random, *, ends: bool) -> list[bytes]:
    """A header block: HEADERS, and maybe CONTINUATIONs; nothing may come between, so it is one piece."""
    parts = [dice.randbytes(dice.randrange(200)) for _ in range(dice.choice((1, 1, 1, 2, 3)))]
    flags = END_STREAM if ends else 0
    whole = frame(Type.HEADERS, flags | (END_HEADERS if len(parts) == 1 else 0), stream, parts[0])
    for n, part in enumerate(parts[1:], 2):
        whole += frame(Type.CONTINUATION, END_HEADERS if n == len(parts) else 0, stream, part)
    return [whole]


def noise(dice: Random, open_streams: list[int]) -> bytes:
    """A frame that is no part of a message."""
    some = dice.choice(open_streams) if open_streams else 1
    return dice.choice(
        (
            frame(Type.WINDOW_UPDATE, 0, dice.choice((0, some)), bytes(4)),
            frame(Type.PING, dice.choice((0, ACK)), 0, dice.randbytes(8)),
            frame(Type.SETTINGS, ACK, 0, b""),
            frame(Type.PRIORITY, 0, some, bytes(5)),
            frame(Type.PRIORITY_UPDATE, 0, 0, dice.randbytes(12)),
            frame(Type.UNKNOWN, dice.randrange(256), some, dice.randbytes(dice.randrange(40))),
        )
    )
