"""The few questions to rtnetlink that attaching to an interface needs."""

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3  # linux/pkt_sched.h: the two hooks of clsact as parents of filters

# linux/rtnetlink.h, linux/if_link.h, linux/netlink.h
_GETLINK, _GETTFILTER = 18, 46
_IFNAME, _LINKINFO, _SLAVE_KIND = 3, 18, 4
_REQUEST, _DUMP = 1, 0x300
_ERROR, _DONE = 2, 3
_HEADER, _IFINFO, _TCMSG, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BxHiII"), struct.Struct("=BxxxiIII"), 4
_KIND_MASK = 0x3FFF


@dataclass(frozen=True)
class Interface:
    """`device`: its type, ARPHRD_* of linux/if_arp.h. `bridge_port`: what comes in goes to a bridge, no socket."""

    name: str
    ifindex: int
    device: int
    bridge_port: bool


def interface(name: str) -> Interface:
    """Return the interface of this network namespace. Raises OSError if there is none of the name."""
    value = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(value), _IFNAME) + value
    request = _IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attribute + bytes(-len(attribute) % 4)
    body = next(_ask(_GETLINK, _REQUEST, request))
    _, device, ifindex, _, _ = _IFINFO.unpack_from(body)
    info = _attributes(_attributes(body[_IFINFO.size :]).get(_LINKINFO, b""))
    return Interface(name, ifindex, device, info.get(_SLAVE_KIND) == b"bridge\0")


def filters(ifindex: int, parent: int) -> int:
    """Return how many messages the kernel needs to list the filters of INGRESS or EGRESS: 0 only if there are none."""
    return sum(1 for _ in _ask(_GETTFILTER, _REQUEST | _DUMP, _TCMSG.pack(socket.AF_UNSPEC, ifindex, 0, parent, 0)))


def _ask(kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    """Send a request; yield the bodies of the answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
        route.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            answer, at = route.recv(1 << 16), 0
            while at < len(answer):
                length, found, _, _, _ = _HEADER.unpack_from(answer, at)
                content = answer[at + _HEADER.size : at + length]
                if found == _DONE:
                    return
                if found == _ERROR:
                    number = -struct.unpack_from("=i", content)[0]
                    raise OSError(number, os.strerror(number))
                yield content
                at += (length + 3) & ~3
            if not flags & _DUMP:
                return


def _attributes(data: bytes) -> Mapping[int, bytes]:
    found, at = {}, 0
    while at + _ATTRIBUTE <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < _ATTRIBUTE:
            break
        found[kind & _KIND_MASK] = data[at + _ATTRIBUTE : at + length]
        at += (length + 3) & ~3
    return found
