"""Frames of TCP handshakes: made by hand, put on an interface, captured with the kernel's time stamps and read back.

An oracle: nothing here is shared with the programs that it is compared with. Addresses as text; numbers in host order.
"""

import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.truth.netns import INTERFACE, Namespace

FIN, SYN, RST, ACK = 1, 2, 4, 16
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION = 0, 43, 44, 51, 60
IPV4, IPV6, VLAN, SERVICE_VLAN = 0x0800, 0x86DD, 0x8100, 0x88A8
_TCP, _ICMP, _ICMPV6 = 6, 1, 58
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h
_ETHERNET = bytes.fromhex("020000000002020000000001")


@dataclass(frozen=True)
class Segment:
    """A TCP segment and what carries it. `vlan`: tag protocols, outer first; `extensions`: IPv6 headers, in order."""

    src: str
    src_port: int
    dst: str
    dst_port: int
    seq: int
    ack: int = 0
    flags: int = SYN
    timestamps: tuple[int, int] | None = None
    payload: bytes = b""
    ip_options: bytes = b""
    vlan: tuple[int, ...] = ()
    extensions: tuple[int, ...] = ()
    fragment_offset: int = 0

    @property
    def ip_version(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.src).version

    def answer(self, seq: int, flags: int = SYN | ACK, **changed: object) -> "Segment":
        """The segment that goes back and acknowledges this one."""
        taken = bool(self.flags & (SYN | FIN)) + len(self.payload)
        back = replace(self, src=self.dst, dst=self.src, src_port=self.dst_port, dst_port=self.src_port, payload=b"")
        return replace(back, seq=seq, ack=(self.seq + taken) & 0xFFFFFFFF, flags=flags, **changed)

    def frame(self) -> bytes:
        """With its Ethernet header."""
        kinds = (*self.vlan, IPV4 if self.ip_version == 4 else IPV6)
        tags = b"".join(struct.pack("!HH", kind, 100 + i) for i, kind in enumerate(self.vlan))
        return _ETHERNET + tags + struct.pack("!H", kinds[-1]) + self.packet()

    def packet(self) -> bytes:
        """From its IP header on."""
        tcp = self._tcp()
        src, dst = (ipaddress.ip_address(text).packed for text in (self.src, self.dst))
        if self.ip_version == 4:
            pseudo = src + dst + struct.pack("!BBH", 0, _TCP, len(tcp))
            return _ipv4(
                src, dst, _TCP, _with_sum(tcp, pseudo, 16), options=self.ip_options, fragment=self.fragment_offset
            )
        pseudo = src + dst + struct.pack("!IHBB", len(tcp), 0, 0, _TCP)
        body = _with_sum(tcp, pseudo, 16)
        following = _TCP
        for kind in reversed(self.extensions):
            body, following = _extension(kind, following, self.fragment_offset) + body, kind
        return struct.pack("!IHBB", 6 << 28, len(body), following, 64) + src + dst + body

    def _tcp(self) -> bytes:
        options = b"\x02\x04\x05\xb4\x01\x01"
        if self.timestamps:
            options += b"\x08\x0a" + struct.pack("!II", *self.timestamps)
        options += bytes(-len(options) % 4)
        offset_flags = (20 + len(options)) // 4 << 12 | self.flags
        header = struct.pack("!HHIIHHHH", self.src_port, self.dst_port, self.seq, self.ack, offset_flags, 65535, 0, 0)
        return header + options + self.payload


def unreachable(quoted: Segment, router: str) -> bytes:
    """The frame of a router's ICMP error about a segment, to its sender."""
    src, dst = (ipaddress.ip_address(text).packed for text in (router, quoted.src))
    if quoted.ip_version == 4:
        message = struct.pack("!BBHI", 3, 1, 0, 0) + quoted.packet()[: 20 + len(quoted.ip_options) + 8]
        return _ETHERNET + struct.pack("!H", IPV4) + _ipv4(src, dst, _ICMP, _with_sum(message, b"", 2))
    message = struct.pack("!BBHI", 1, 3, 0, 0) + quoted.packet()[:1200]
    pseudo = src + dst + struct.pack("!IHBB", len(message), 0, 0, _ICMPV6)
    header = struct.pack("!IHBB", 6 << 28, len(message), _ICMPV6, 64) + src + dst
    return _ETHERNET + struct.pack("!H", IPV6) + header + _with_sum(message, pseudo, 2)


def _ipv4(src: bytes, dst: bytes, protocol: int, body: bytes, *, options: bytes = b"", fragment: int = 0) -> bytes:
    length = 20 + len(options) + len(body)
    first = 0x40 | (20 + len(options)) // 4
    header = struct.pack("!BBHHHBBH", first, 0, length, 0, fragment, 64, protocol, 0) + src + dst + options
    return _with_sum(header, b"", 10) + body


def _extension(kind: int, following: int, fragment_offset: int) -> bytes:
    if kind == FRAGMENT:
        return struct.pack("!BBHI", following, 0, fragment_offset << 3 | 1, 7)
    if kind == AUTHENTICATION:
        return struct.pack("!BBHIIQI", following, 4, 0, 1, 1, 0, 0)
    if kind == ROUTING:
        return struct.pack("!BBBBI", following, 0, 253, 0, 0)
    return struct.pack("!BBBB4x", following, 0, 1, 4)  # one option, PadN


def _with_sum(data: bytes, pseudo: bytes, at: int) -> bytes:
    padded = pseudo + data + bytes(len(pseudo + data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:at] + struct.pack("!H", ~total & 0xFFFF) + data[at + 2 :]


@dataclass(frozen=True)
class Seen:
    """A captured segment; `unix_ns`: when the interface passed it."""

    unix_ns: int
    src: str
    src_port: int
    dst: str
    dst_port: int
    seq: int
    ack: int
    flags: int


class Wire:
    """An interface of a namespace: puts frames on it and captures what passes, both ways."""

    def __init__(self, namespace: Namespace) -> None:
        with namespace.inside():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
            self._sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # nobody captures what he sends himself
        self._socket.bind((INTERFACE, 3))
        self._sender.bind((INTERFACE, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self._socket.setblocking(False)

    def send(self, frame: bytes) -> None:
        """Let a frame leave the namespace."""
        self._sender.send(frame)

    def seen(self) -> Iterator[Seen]:
        """Yield the segments that have passed since the last call."""
        for unix_ns, frame in self._captured():
            segment = _read(frame)
            if segment:
                yield replace(segment, unix_ns=unix_ns)

    def frames(self) -> Iterator[bytes]:
        """Yield what has passed since the last call, as it is."""
        for _, frame in self._captured():
            yield frame

    def _captured(self) -> Iterator[tuple[int, bytes]]:
        while True:
            try:
                frame, ancillary, _, _ = self._socket.recvmsg(65536, 256)
            except BlockingIOError:
                return
            seconds, ns = struct.unpack("qq", ancillary[0][2])
            yield seconds * 10**9 + ns, frame

    def close(self) -> None:
        """Capture no more."""
        self._socket.close()
        self._sender.close()


@contextmanager
def wire(namespace: Namespace) -> Iterator[Wire]:
    """Yield the wire of a namespace."""
    opened = Wire(namespace)
    try:
        yield opened
    finally:
        opened.close()


def _read(frame: bytes) -> Seen | None:
    at = 12
    while (kind := int.from_bytes(frame[at : at + 2])) in (VLAN, SERVICE_VLAN):
        at += 4
    packet = frame[at + 2 :]
    if kind == IPV4:
        src, dst, protocol, body = packet[12:16], packet[16:20], packet[9], packet[(packet[0] & 15) * 4 :]
    elif kind == IPV6:
        src, dst, protocol, body = packet[8:24], packet[24:40], packet[6], packet[40:]
        while protocol in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION):
            length = {FRAGMENT: 8, AUTHENTICATION: (body[1] + 2) * 4}.get(protocol, (body[1] + 1) * 8)
            protocol, body = body[0], body[length:]
    else:
        return None
    if protocol != _TCP:
        return None
    src_port, dst_port, seq, ack, _, flags = struct.unpack_from("!HHIIBB", body)
    addresses = [str(ipaddress.ip_address(packed)) for packed in (src, dst)]
    return Seen(0, addresses[0], src_port, addresses[1], dst_port, seq, ack, flags)


def client_rtts(seen: Iterable[Seen], port: int) -> dict[int, int]:
    """From the capture at a client: its port → time from the last SYN to the first SYN-ACK that answers it."""
    return _rtts((one for one in seen if port in (one.src_port, one.dst_port)), SYN, SYN | ACK)


def server_rtts(seen: Iterable[Seen], port: int) -> dict[int, int]:
    """From the capture at a server: the client's port → time from the last SYN-ACK to the first ACK that answers it."""
    return _rtts((one for one in seen if port in (one.src_port, one.dst_port)), SYN | ACK, ACK)


def _rtts(seen: Iterable[Seen], asking: int, answering: int) -> dict[int, int]:
    asked: dict[tuple[int, int, int], int] = {}
    rtts: dict[int, int] = {}
    for one in seen:
        kind = one.flags & (FIN | SYN | RST | ACK)
        if kind == asking:
            asked[one.src_port, one.dst_port, (one.seq + 1) & 0xFFFFFFFF] = one.unix_ns
        elif kind == answering and (at := asked.get((one.dst_port, one.src_port, one.ack))):
            rtts.setdefault(one.dst_port if answering & SYN else one.src_port, one.unix_ns - at)
    return rtts
