"""TLS: its handshake, tickets and goodbyes are no RPCs. The target says `tls: true`, which is two turns of set-up."""

import asyncio
import contextlib
import http.client
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from tests.support.servers import encrypted, nginx, version
from tests.truth.calls import ROLES, Calls, assert_events_are_calls, excluded, tell

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

TLS_TURNS = 2  # that `tls: true` leaves out
ANSWER = 'return 200 "answer";'


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "tls.crt"))


@pytest.mark.parametrize("tickets", [True, False])
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_only_requests_are_events_of_tls(flushed, tmp_path, port, protocol, tickets):
    """What is lost is at most the first request of a connection: it may share a turn with the end of the handshake."""
    calls, connections = Calls(), 4
    flushed.measure(port, tls=True)
    with nginx(tmp_path, port, ANSWER, more=encrypted(tmp_path, port, protocol, tickets=tickets)):
        for _ in range(connections):
            client = http.client.HTTPSConnection("localhost", port, context=trusting(tmp_path))
            client.connect()
            assert client.sock.version() == protocol
            for _ in range(15):
                with calls.call():
                    client.request("GET", "/")
                    assert client.getresponse().read() == b"answer"
            client.close()
    records = flushed.records_of_ended()
    tell(server(), f"{protocol}, {'with' if tickets else 'without'} tickets", calls, records)
    assert_events_are_calls(calls, records, missing=connections)
    for role in ROLES:
        reasons = excluded(records, role)
        assert reasons.pop("setup") == TLS_TURNS * connections
        assert reasons.pop("overlap", 0) <= connections  # a first request while tickets are under way
        assert not reasons, role.name


@pytest.mark.parametrize("first", ["client", "server"])
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_the_goodbye_of_tls_fails_nothing_whoever_closes_first(flushed, tmp_path, port, protocol, first):
    """curl sends a close_notify; where nginx is the first to close it has sent one too."""
    calls, connections, each = Calls(), 20, 4
    flushed.measure(port, tls=True)
    limit = f"keepalive_requests {each};" if first == "server" else ""
    with nginx(tmp_path, port, ANSWER, more=encrypted(tmp_path, port, protocol) + limit):
        url = f"https://localhost:{port}/"
        words = ["curl", "-s", "-w", "%{time_total}\\n", "--cacert", str(tmp_path / "tls.crt")]
        for _ in range(connections):
            done = subprocess.run(
                [*words, *["-o", "/dev/null", url] * each], check=True, capture_output=True, text=True
            )
            for line in done.stdout.split():
                calls.took(int(float(line) * 1e9))
    records = flushed.records_of_ended()
    tell(server(), f"{protocol}, curl, the {first} closes first", calls, records)
    assert len(calls) == each * connections
    # the first call of a connection, and where nginx closes first the last: curl's close_notify may cross nginx's, and
    # that then waits to be read as a response that goes on would
    assert_events_are_calls(calls, records, missing=connections * (2 if first == "server" else 1))
    for role in ROLES:
        reasons = excluded(records, role)
        assert reasons.pop("setup") == TLS_TURNS * connections
        # nginx, once it has closed, has no use for a close_notify, which may cross its own
        assert sum(reasons.pop(why, 0) for why in ("overlap", "pipelined", "teardown")) <= 2 * connections
        assert not reasons, role.name


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_server_that_answers_the_goodbye_of_tls_counts_no_rpc(flushed, tmp_path, port, protocol):
    """asyncio, Node, Go: whoever gets a close_notify sends one; curl's FIN came with its own."""
    calls, connections, each = Calls(), 10, 3
    flushed.measure(port, tls=True)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(*make_certificate(tmp_path, "tls"))
    ours.minimum_version = ours.maximum_version = ssl.TLSVersion[protocol.replace(".", "_")]
    words = ["curl", "-s", "-w", "%{time_total}\\n", "--cacert", tmp_path / "tls.crt"]
    words += each * ["-o", "/dev/null", f"https://localhost:{port}/"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer")
        writer.close()

    async def scene() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", port, ssl=ours):
            for _ in range(connections):
                curl = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
                printed, _ = await curl.communicate()
                for line in printed.decode().split():
                    calls.took(int(float(line) * 1e9))

    asyncio.run(scene())
    records = flushed.records_of_ended()
    tell("asyncio", f"{protocol}, curl, the client closes first", calls, records)
    assert len(calls) == each * connections
    assert_events_are_calls(calls, records, missing=connections)
    for role in ROLES:
        reasons = excluded(records, role)
        assert reasons.pop("setup") == TLS_TURNS * connections
        assert reasons.pop("overlap", 0) <= connections  # a first request while tickets are under way
        assert reasons.pop("teardown", 0) == connections
        assert not reasons, role.name


def server() -> str:
    return f"nginx {version('nginx', '-v')}"
