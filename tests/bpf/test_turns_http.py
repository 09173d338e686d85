"""HTTP/1.1 beyond a request and its answer: early answers, closing servers, proxies, streams, websockets."""

import asyncio
import http.client
import importlib.metadata
import platform
import sys
import time

import numpy as np
import pytest
import websockets

from latencyprobe_agent.vocabulary.records import Role
from tests.support.ports import free_port
from tests.support.servers import haproxy, nginx, running, version
from tests.truth.calls import (
    ROLES,
    Calls,
    assert_events_are_calls,
    assert_nothing_is_lost,
    events,
    excluded,
    failures,
    of_clients,
    of_port,
    tell,
)

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

PAUSE_S = 0.4  # above the 200 ms that are silence
ANSWER = 'return 200 "answer";'
NODE = """
const pieces = (answer, left, ms) => {
    answer.write('piece');
    if (left > 1) setTimeout(pieces, ms, answer, left - 1, ms); else answer.end();
};
require('http').createServer((request, answer) => {
    if (request.url == '/') answer.end('answer');
    else pieces(answer, 5, parseInt(request.url.slice(1)));
}).listen(process.argv[1], '127.0.0.1');
"""


class Client(http.client.HTTPConnection):
    """One connection, and its log."""

    def __init__(self, port: int, calls: Calls) -> None:
        super().__init__("127.0.0.1", port)
        self.calls = calls

    def ask(self, path: str = "/", body: bytes | None = None) -> tuple[int, bytes]:
        """(Status, answer)."""
        with self.calls.call():
            self.request("GET" if body is None else "POST", path, body)
            answer = self.getresponse()
            return answer.status, answer.read()


def nginx_version() -> str:
    return f"nginx {version('nginx', '-v')}"


def test_an_answer_in_the_middle_of_an_upload_is_one_exchange(flushed, tmp_path, port):
    """nginx says 413 as soon as it has read the header, and goes on to read the rest.

    An end may see the header answered, an event, before the body comes, which is then nobody's request: it is left
    unanswered, or the answer's rest overlaps it.
    """
    calls, uploads = Calls(), 10
    flushed.measure(port)
    with nginx(tmp_path, port, ANSWER, more=f"listen {port}; client_max_body_size 1k;"):
        for _ in range(uploads):
            client = Client(port, calls)
            assert client.ask(body=bytes(4 << 20))[0] == 413
            client.close()
    records = flushed.records_of_ended()
    tell(nginx_version(), "413 during an upload of 4 MiB", calls, records)
    assert_events_are_calls(calls, records, missing=uploads)
    for role in ROLES:
        mine = records[records["role"] == role]
        client = np.where(role == Role.SERVER, mine["peer_port"], mine["local_port"])
        for of_one in (mine[client == port] for port in np.unique(client)):
            reasons = excluded(of_one, role)
            assert len(events(of_one, role)) <= 1 <= len(events(of_one, role)) + reasons["overlap"]
            assert reasons["overlap"] <= 1
            assert reasons["teardown"] <= (role is Role.SERVER)
            assert reasons.keys() <= {"overlap", "teardown"}, role.name
        assert np.unique(client).size == uploads


def test_a_server_that_ends_keep_alive_fails_nothing(flushed, tmp_path, port):
    calls = Calls()
    flushed.measure(port)
    with nginx(tmp_path, port, ANSWER, more=f"listen {port}; keepalive_timeout 3;"):
        client = Client(port, calls)
        for _ in range(5):
            assert client.ask() == (200, b"answer")
            time.sleep(PAUSE_S)
        assert client.sock.recv(1) == b"", "nginx has closed"
        client.close()
    records = flushed.records_of_ended()
    tell(nginx_version(), "keep-alive that the server ends", calls, records)
    assert_events_are_calls(calls, records)
    assert_nothing_is_lost(records)


def test_haproxy_is_two_hops_and_its_checks_are_rpcs_of_its_own(flushed, tmp_path, port):
    """Requests to it are what its client counts; those behind it what nginx logs: requests and checks."""
    calls, behind = Calls(), free_port()
    flushed.measure(port, behind)
    with (
        nginx(tmp_path, behind, ANSWER),
        haproxy(tmp_path, port, behind, options="option httpchk GET /check"),
    ):
        client = Client(port, calls)
        for _ in range(3):
            for _ in range(100):
                assert client.ask() == (200, b"answer")
            time.sleep(PAUSE_S)
        client.close()
    records = flushed.records_of_ended()
    software = f"HAProxy {version('haproxy', '-v')}"
    logged = len((tmp_path / "access.log").read_text().splitlines())
    tell(software, "in front", calls, of_port(records, port))
    tell(software, "behind: requests and checks", logged, of_port(records, behind))
    assert_events_are_calls(calls, of_port(records, port))
    assert_nothing_is_lost(records)
    assert logged > len(calls)
    for role in ROLES:
        mine = events(of_port(records, behind), role)
        left = excluded(of_port(records, behind), role)["teardown"]
        assert left <= (role == Role.CLIENT), "HAProxy may end over a check whose answer it has not read"
        assert (len(mine) + left, failures(mine)) == (logged, 0), "a check ends by a RST as soon as it has the answer"


def test_answers_of_node_are_one_event_each_with_short_pauses_and_streaming_with_long_ones(flushed, port):
    """Five pieces, 50 ms apart or 400 ms: the latter are a stream, as of server-sent events."""
    quick, streamed = Calls(), Calls()
    flushed.measure(port)
    with running("node", "-e", NODE, port, port=port):
        client, listener = Client(port, quick), Client(port, streamed)
        for _ in range(500):
            assert client.ask() == (200, b"answer")
        for _ in range(3):
            assert client.ask("/50") == (200, b"piece" * 5)
        connect_port = client.sock.getsockname()[1]
        assert listener.ask("/400") == (200, b"piece" * 5)
        client.close()
        listener.close()
    of_client, of_listener = of_clients(flushed.records_of_ended(), connect_port)
    software = f"Node {version('node', '--version')}"
    tell(software, "500 requests, 3 answers in pieces 50 ms apart", quick, of_client)
    tell(software, "an answer in 5 pieces 400 ms apart", streamed, of_listener)
    assert_events_are_calls(quick, of_client)
    assert_nothing_is_lost(of_client)
    for role in ROLES:
        assert not len(events(of_listener, role))
        assert excluded(of_listener, role) == {"streaming": 1, "push": 4}


def test_every_request_to_pythons_http_server_is_one_event(flushed, tmp_path, port):
    """HTTP/1.0: a connection each, which the server closes."""
    calls = Calls()
    flushed.measure(port)
    (tmp_path / "file").write_bytes(bytes(100_000))
    with running(sys.executable, "-m", "http.server", "-b", "127.0.0.1", "-d", tmp_path, port, port=port):
        for _ in range(100):
            client = Client(port, calls)
            assert client.ask("/file") == (200, bytes(100_000))
            client.close()
    records = flushed.records_of_ended()
    tell(f"Python {platform.python_version()} http.server", "100 connections", calls, records)
    assert_events_are_calls(calls, records)
    assert_nothing_is_lost(records)


def test_calls_by_websocket_are_events_until_the_server_pushes(flushed, port):
    """The upgrade and 50 echoes are RPCs. News that nobody asked for are pushes, and so is the rest."""
    calls = Calls()

    async def serve(connection: websockets.ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)
            if message == "news":
                for number in range(5):
                    await asyncio.sleep(PAUSE_S)
                    await connection.send(str(number))

    async def scene() -> None:
        async with websockets.serve(serve, "127.0.0.1", port):
            with calls.call():
                client = await websockets.connect(f"ws://127.0.0.1:{port}")
            for _ in range(50):
                with calls.call():
                    await client.send("question")
                    assert await client.recv() == "question"
            with calls.call():
                await client.send("news")
                assert await client.recv() == "news"
            assert [await client.recv() for _ in range(5)] == list("01234")
            with calls.call():  # a message each way
                await client.close()

    flushed.measure(port)
    asyncio.run(scene())
    records = flushed.records_of_ended()
    tell(f"websockets {importlib.metadata.version('websockets')}", "51 calls, 5 pushes", calls, records)
    assert_events_are_calls(calls, records, missing=2)  # behind the last call, pushes: streaming; the close among them
    for role in ROLES:
        assert excluded(records, role)["push"] >= 4
