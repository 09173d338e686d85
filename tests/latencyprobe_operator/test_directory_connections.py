"""Who holds connections to the directory, says half of something or reads nothing, is cut off and keeps nobody out."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any

import pytest

from latencyprobe_operator.cluster.objects import Node
from latencyprobe_operator.directory import connections as connections_
from latencyprobe_operator.directory import server, streams
from tests.latencyprobe_operator.directory_world import Play, World
from tests.support.waiting import until

Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def tcp(it: World, address: str = "127.0.0.1") -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
    made.setblocking(False)
    made.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", int(it.url.rpartition(":")[2])))
    return made


async def tls(it: World, said: bytes = b"", address: str = "127.0.0.1") -> Open:
    made = await tcp(it, address)
    reader, writer = await asyncio.open_connection(sock=made, ssl=it.tls, server_hostname="127.0.0.1")
    writer.write(said)
    await writer.drain()
    return reader, writer


def request(what: str, node: str, *headers: str) -> bytes:
    return "\r\n".join(
        [f"{what} HTTP/1.1", "Host: d", f"Authorization: Bearer token-{node}", *headers, "", ""]
    ).encode()


async def known(it: World, node: str, address: str = "127.0.0.1") -> Open:
    """A connection whose agent has been answered."""
    reader, writer = await tls(it, request("GET /metrics", node), address)
    await reader.readuntil(b"\r\n")
    return reader, writer


async def ended(one: Open) -> bool:
    async with asyncio.timeout(10):
        try:
            while await one[0].read(1 << 16):
                pass
        except ConnectionError:
            pass
    return True


async def is_served(it: World, node: str = "n2") -> bool:
    return (await it.call("POST", "/v1/identities", {"addresses": []}, f"token-{node}"))[0] == 200


@pytest.mark.parametrize("said", [None, b"", b"GET /v1/nodes/n1/plan HTTP/1.1\r\nAuthorization: Bearer to"])
def test_a_stranger_that_does_not_say_who_he_is_is_cut_off_in_time(
    play: Play, monkeypatch: pytest.MonkeyPatch, said: bytes | None
) -> None:
    """Silent before the handshake, after it, and half way through a request."""

    async def scene(it: World) -> None:
        assert await is_served(it)
        monkeypatch.setattr(connections_, "KNOWN_WITHIN_S", 0.1)
        if said is None:
            with await tcp(it):
                await until(lambda: it.connections.cut)
        else:
            with suppress(ConnectionError, ssl.SSLError):  # in the midst of the handshake already
                assert await ended(await tls(it, said))
            await until(lambda: it.connections.cut)
        assert it.connections.cut == 1
        assert len(it.connections) == 1, "the agent's, which was there before"
        assert await is_served(it)

    play(scene)


def test_who_holds_connections_costs_the_oldest_and_no_agent(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(it: World) -> None:
        assert await is_served(it)
        monkeypatch.setattr(connections_, "STRANGERS", 5)
        agent = await tls(it, b"", "127.0.0.2")  # of an agent's pod, before its first request
        held = [await tls(it) for _ in range(8)]
        for one in held[:3]:
            assert await ended(one)
        assert it.connections.cut == 3
        agent[1].write(request("GET /healthz", "n1"))
        assert await agent[0].readline() == b"HTTP/1.1 200 OK\r\n"
        assert await is_served(it)

    play(scene)


def test_who_connects_again_and_again_has_no_more_handshakes_and_holds_up_nobody_else(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_, "NEW_AT_ONCE", 5)
    monkeypatch.setattr(connections_, "NEW_PER_S", 0)

    async def scene(it: World) -> None:
        assert await is_served(it)
        for _ in range(5):
            (await tls(it, address="127.0.0.9"))[1].transport.abort()
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await tls(it, address="127.0.0.9")
        assert it.connections.cut == 1
        await tls(it, address="127.0.0.8")
        assert await is_served(it)

    play(scene)


def test_kubelets_ask_for_health_as_often_as_they_like(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a node is that of all whose address is translated there, too."""
    monkeypatch.setattr(connections_, "NEW_AT_ONCE", 5)

    async def scene(it: World) -> None:
        it.state.put("nodes", Node("uid-n1", "n1", ("127.0.0.9",)))
        for _ in range(20):
            await tls(it, address="127.0.0.9")
        assert it.connections.cut == 0

    play(scene)


def test_an_agent_that_opens_connections_without_end_loses_its_own(play: Play) -> None:
    async def scene(it: World) -> None:
        assert await is_served(it)
        stream = request("GET /v1/nodes/n1/plan", "n1")
        post = request("POST /v1/identities", "n1", "Content-Length: 16")
        held = [await tls(it, stream if number == 1 else post) for number in range(connections_.OF_NODE + 1)]
        assert await ended(held[0])
        await until(lambda: it.connections.cut == 1)
        assert len(it.connections) == connections_.OF_NODE + 1
        assert await is_served(it)

    play(scene)


def test_a_body_that_stops_half_way_is_not_waited_for(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_S", 0.1)

    async def scene(it: World) -> None:
        reader, writer = await tls(it, request("POST /v1/nodes/n1/sli", "n1", "Content-Length: 1000") + b"[")
        assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
        writer.close()
        assert await is_served(it, "n1")

    play(scene)


def test_an_agent_that_goes_half_way_through_a_body_is_no_error_of_ours(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(it: World) -> None:
        _, writer = await tls(it, request("POST /v1/nodes/n1/sli", "n1", "Content-Length: 1000") + b"[")
        await until(lambda: it.reviewer.calls)
        writer.transport.abort()
        await until(lambda: it.directory.requests["/v1/nodes/{node}/sli", 400])
        assert [record for record in caplog.records if record.name == "aiohttp.server"] == []

    play(scene)


def test_a_connection_that_says_nothing_more_is_closed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.2)

    async def scene(it: World) -> None:
        reader, writer = await tls(it, request("POST /v1/identities", "n1", "Content-Length: 16") + b'{"addresses":[]}')
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.write(b"POST /v1/identities HTTP/1.1\r\nHost:")
        assert await ended((reader, writer))

    play(scene)


@pytest.mark.long
@pytest.mark.parametrize("who", ["the directory", "the kernel"])
def test_the_connection_of_an_agent_that_does_not_read_is_given_up_with_all_that_waits_for_it(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """More than the kernel takes is given up by the directory, less by the kernel."""
    monkeypatch.setattr(streams, "WRITE_TIMEOUT_S", 0.1 if who == "the directory" else 60.0)
    monkeypatch.setattr(streams, "SLOWEST_PER_S", 64 << 20)
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.5)  # then it is seen at the latest
    monkeypatch.setattr(connections_, "UNREAD_S", 60 if who == "the directory" else 1)

    async def scene(it: World) -> None:
        for number in range(2_000):
            it.state.put("pods", make.pod(f"cart-{number}", addresses=(f"10.1.{number // 250}.{number % 250}",)))
        names = [f"t{number}" for number in range(16 if who == "the directory" else 1)]
        targets = [{"name": name, "podSelector": {"matchLabels": {"app": "cart"}}} for name in names]
        it.plan(make.probe(targets=targets, objectives=[]))
        reader, writer = await tls(it, request("GET /v1/nodes/n1/plan", "n1"))
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: it.directory.streams.of)
        await until(lambda: not it.directory.streams.of and not len(it.connections), timeout_s=30)
        writer.transport.abort()

    play(scene)
