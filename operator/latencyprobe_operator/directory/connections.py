"""Connections to the directory, from the first byte on: how many of whom there are, and until when a stranger must have
said who he is. What each takes is memory, whatever it sends.

`tls.py` tells of each that begins and ends, `server.py` whose it is.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple

from latencyprobe_operator.directory.limits import SOURCES, Bucket, Recent

STRANGERS = 1_000  # those of no agent's pod that have shown no token that is believed
OF_ADDRESS = 16  # the same of one agent's pod
OF_NODE = 8  # of an agent, which has two; of who reads metrics
NEW_PER_S, NEW_AT_ONCE = 10, 100  # of an address, but a node's
KNOWN_WITHIN_S = 30.0
UNREAD_S = 30  # who takes nothing in for so long is cut off by the kernel, and so is who is not there any more

Peer = tuple[str, int]


class _One(NamedTuple):
    transport: asyncio.Transport
    late: asyncio.TimerHandle
    of: str


class Connections:
    """The connections that are open. Of more than there may be the oldest is cut, and so is at once who begins them too
    fast: a handshake is a millisecond or two of the event loop. `is_agent`: whether an agent's pod has an address;
    these share with nobody. `is_node`: whether a node has, whose kubelet asks for our health. `cut`: how many were."""

    def __init__(
        self,
        is_agent: Callable[[str], bool] = lambda _: False,
        is_node: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.cut = 0
        self._is_agent = is_agent
        self._is_node = is_node
        self._new: Recent[str, Bucket] = Recent(SOURCES, lambda: Bucket(NEW_PER_S, NEW_AT_ONCE))
        self._open: dict[Peer, _One] = {}
        self._of: dict[str, dict[Peer, None]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def begun(self, transport: asyncio.Transport) -> None:
        """Take note of one, before its TLS handshake."""
        peer, own = _peer(transport), transport.get_extra_info("socket")
        if own is not None and own.family in (socket.AF_INET, socket.AF_INET6):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_S * 1000)
        late = asyncio.get_running_loop().call_later(KNOWN_WITHIN_S, self._cut, peer)
        of, most = (f"address {peer[0]}", OF_ADDRESS) if self._is_agent(peer[0]) else ("strangers", STRANGERS)
        self._put(peer, _One(transport, late, of), most)
        if peer in self._open and not self._is_node(peer[0]) and not self._new.of(peer[0]).take():
            self._cut(peer)

    def known(self, transport: asyncio.BaseTransport | None, who: str) -> None:
        """Take note of whose a connection is, as its token was believed."""
        one = self._open.get(peer := _peer(transport)) if transport is not None else None
        if one is not None and one.of != who:
            self.ended(one.transport)
            self._put(peer, one._replace(of=who), OF_NODE)

    def ended(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the end of one."""
        peer = _peer(transport)
        one = self._open.pop(peer, None)
        if one is not None:
            one.late.cancel()
            del self._of[one.of][peer]
            if not self._of[one.of]:
                del self._of[one.of]

    def _put(self, peer: Peer, one: _One, most: int) -> None:
        self._open[peer] = one
        of = self._of.setdefault(one.of, {})
        of[peer] = None
        if len(of) > most:
            self._cut(next(iter(of)))

    def _cut(self, peer: Peer) -> None:
        self.cut += 1
        transport = self._open[peer].transport
        self.ended(transport)
        transport.abort()


def _peer(transport: asyncio.BaseTransport) -> Peer:
    """Return who is at the other end, which no two open connections have in common; IPv4 as IPv4."""
    host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
    return host.removeprefix("::ffff:"), port
