"""A TLS connection that speaks as much HTTP/1.1 as a played agent needs (`scale_agents.py`); what idle ones cost."""

import asyncio
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from benchmarks.operator_process import Operator
from latencyprobe import wire

IDLE = 1_000  # connections


class Answer(NamedTuple):
    status: int
    body: bytes
    s: float


class Connection:
    """One TLS connection that speaks HTTP/1.1. `number`: whose it is, who has an address of his own."""

    def __init__(self, host: str, port: int, trust: ssl.SSLContext, number: int) -> None:
        self._where = (host, port, trust)
        self._source = str(ipaddress.IPv4Address("127.1.0.0") + number)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connect, unless it is."""
        if self._streams is None:
            host, port, trust = self._where
            own = (self._source, 0)
            self._streams = await asyncio.open_connection(
                host, port, ssl=trust, server_hostname="localhost", local_addr=own
            )

    async def request(self, method: str, path: str, token_: str, body: bytes = b"", more: str = "") -> dict[str, str]:
        """Send a request and return the answer's headers, with `:status`."""
        assert self._streams is not None
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_}\r\n{more}"
            f"{wire.HEADER}: {wire.VERSION}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        return headers | {":status": lines[0].split()[1]}

    async def post(self, path: str, token_: str, body: bytes) -> Answer:
        """Post a document."""
        began_s = time.monotonic()
        headers = await self.request("POST", path, token_, body)
        assert self._streams is not None
        answer = await self._streams[0].readexactly(int(headers.get("content-length", 0)))
        return Answer(int(headers[":status"]), answer, time.monotonic() - began_s)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks of an answer that has no end."""
        assert self._streams is not None
        reader = self._streams[0]
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)

    def close(self) -> None:
        """Let go of the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def cost(operator: Operator, port: int, trust: ssl.SSLContext) -> float:
    """Return how many bytes of an operator's memory a connection takes that has had one answer and waits."""
    connections = [Connection("127.0.0.1", port, trust, number) for number in range(IDLE)]
    try:
        for one in connections[: IDLE // 10]:  # what the first few need stays
            await one.open()
            await one.request("GET", "/readyz", "")
        before = operator.memory()
        for one in connections[IDLE // 10 :]:
            await one.open()
            await one.request("GET", "/readyz", "")
        return (operator.memory() - before) / (IDLE - IDLE // 10)
    finally:
        for one in connections:
            one.close()
