"""Workloads that are not ours: Redis under its own benchmark; TLS 1.3, whose tickets cut turns apart on one side."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.support import servers
from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.truth.calls import tell

pytestmark = pytest.mark.root

REDIS_PORT = free_port()
TLS_PORT = free_port()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[int]:
    """A Redis server of our own; its port."""
    with servers.redis(tmp_path, REDIS_PORT):
        yield REDIS_PORT


def redis_cli(*words: str) -> str:
    done = subprocess.run(
        ["redis-cli", "-p", str(REDIS_PORT), *words], capture_output=True, text=True, check=False, timeout=10
    )
    return done.stdout.strip()


def commands_processed() -> dict[str, int]:
    """Redis's own count of each command, such as {"get": 100000}."""
    lines = (line.partition(":") for line in redis_cli("info", "commandstats").splitlines() if ":" in line)
    return {
        name.removeprefix("cmdstat_"): int(fields.split(",")[0].removeprefix("calls=")) for name, _, fields in lines
    }


def test_every_get_of_redis_benchmark_is_one_pair(session, redis):
    """Redis counts its commands itself. First, redis-benchmark asks for two settings in one write: one exchange."""
    redis_cli("config", "resetstat")
    before = commands_processed()
    session.measure(redis)
    subprocess.run(
        ["redis-benchmark", "-p", str(redis), "-c", "8", "-n", "100000", "-t", "get", "-q"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = commands_processed()
    assert after["get"] == 100_000
    assert after["config|get"] == 2
    commands = sum(after.values()) - sum(before.values())  # INFO does not see itself: the first is in, the second out
    requests = commands - 1
    print(f"redis: {commands} commands in {requests} requests: {after}")

    records = session.records(2 * requests)
    software = f"Redis {servers.version('redis-server', '--version')}"
    tell(software, "redis-benchmark, 8 connections", requests, records)
    assert not any(session.programs.lost().values()), session.programs.lost()
    assert {role: int((records["role"] == role).sum()) for role in (Role.CLIENT, Role.SERVER)} == {
        Role.CLIENT: requests,
        Role.SERVER: requests,
    }
    assert (records["excluded"] == Excluded.NONE).all()
    assert (records["outcome"] == Outcome.OK).all()
    _, pairs = session.pairs(records)
    assert len(pairs) == requests
    assert (pairs.client.rec["local_port"] == pairs.server.rec["peer_port"]).all()
    # an exchange of a pair lies inside the other half's time, and those of one connection follow one another
    assert (pairs.client.start_ns <= pairs.server.start_ns).all()
    assert (pairs.server.rec["send_start_ns"] <= pairs.client.rec["read_last_ns"]).all()
    order = np.lexsort((pairs.client.start_ns, pairs.client.rec["sock_cookie"]))
    same = np.diff(pairs.client.rec["sock_cookie"][order]) == 0
    assert (pairs.client.end_ns[order][:-1] <= pairs.client.start_ns[order][1:])[same].all()


def serve_tls(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Answer each 64-byte request with 1,000 bytes until the client leaves; end when the listener is closed."""

    def serve(plain: socket.socket) -> None:
        with context.wrap_socket(plain, server_side=True) as connection:
            while connection.recv(64):
                connection.sendall(bytes(1000))

    with listener:
        for _ in range(8):
            threading.Thread(target=serve, args=(listener.accept()[0],)).start()


def call_tls(context: ssl.SSLContext, requests: int) -> tuple[int, np.ndarray]:
    """(Port of the client, boot-time stamps [requests, 2] around each request and its response)."""
    with (
        socket.create_connection(("127.0.0.1", TLS_PORT)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        assert connection.version() == "TLSv1.3"
        stamps = np.zeros((requests, 2), np.int64)
        for row in stamps:
            row[0] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            connection.sendall(bytes(64))
            missing = 1000
            while missing:
                missing -= len(connection.recv(missing))
            row[1] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return plain_port(connection), stamps


def plain_port(connection: socket.socket) -> int:
    port: int = connection.getsockname()[1]
    return port


@pytest.mark.parametrize("setup_turns", [0, 1])
def test_tls_requests_are_never_linked_wrongly(session, tmp_path, setup_turns):
    """The tickets that the server sends unasked may cut first turns apart: those stay alone, the rest pairs."""
    certificate, key = make_certificate(tmp_path, "tls")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    calling = ssl.create_default_context(cafile=str(certificate))
    session.measure(TLS_PORT, setup_turns=setup_turns)
    listener = socket.create_server(("127.0.0.1", TLS_PORT))
    server = threading.Thread(target=serve_tls, args=(listener, serving))
    server.start()
    logs = dict(call_tls(calling, requests=100) for _ in range(8))
    server.join()
    _, pairs = session.pairs(session.records_of_closed(2 * len(logs)))

    linked = dict.fromkeys(logs, 0)
    for port, stamps in logs.items():
        mine = pairs.client.rec["local_port"] == port
        assert (pairs.server.rec["peer_port"][mine] == port).all(), "a link between two connections"
        # each half belongs to the request that the application had begun last when it started; -1: the handshake
        of_client = np.searchsorted(stamps[:, 0], pairs.client.start_ns[mine], side="right") - 1
        of_server = np.searchsorted(stamps[:, 0], pairs.server.start_ns[mine], side="right") - 1
        np.testing.assert_array_equal(of_client, of_server, "a link between two requests")
        paired = np.bincount(of_client[of_client >= 0], minlength=100)
        assert (paired[1:] <= 1).all(), "a request is one pair at most"
        assert (paired[34:] == 1).all(), "each is one, once 32 clean turns follow whatever the tickets overlapped"
        linked[port] = int((of_client >= 0).sum())
    print(
        f"TLS 1.3, setupTurns {setup_turns}: {sum(linked.values())} of 800 requests linked, {len(pairs)} pairs in all"
    )


def test_a_batch_of_sixteen_commands_is_one_exchange(session, redis):
    """redis-benchmark -P 16 writes sixteen at once and waits for all answers: turns alternate, n / 16 of them."""
    before = commands_processed()
    session.measure(redis)
    subprocess.run(
        ["redis-benchmark", "-p", str(redis), "-c", "4", "-n", "32000", "-t", "get", "-P", "16", "-q"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    records = session.records(2 * (32_000 // 16 + 1))
    session.measure()
    software = f"Redis {servers.version('redis-server', '--version')}"
    tell(software, "32,002 commands, 16 or 2 in one write", 2_001, records)
    assert commands_processed()["get"] - before.get("get", 0) == 32_000
    assert [(records["role"] == role).sum() for role in (Role.CLIENT, Role.SERVER)] == [2_001, 2_001]
    assert (records["excluded"] == Excluded.NONE).all()
    assert len(session.pairs(records)[1]) == 2_001, "and one for the settings that it asks for first"
