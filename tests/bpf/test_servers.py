"""Real servers under their usual clients: exchanges equal what the client itself counts.

What a protocol adds is stated in each test: handshake turns per connection. Traffic that does not take turns yields no
counted event beyond its first turns, and its class says why.
"""

import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from thriftpy2.rpc import client_context

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.servers import encrypted, memcached, nginx, pg, postgres, postgres_programs, running, version
from tests.truth import echo
from tests.truth.calls import tell

pytestmark = pytest.mark.root

PORT = free_port()
POSTGRES_PORT = free_port()  # its server stays up between tests
ADDRESS = ("127.0.0.1", PORT)
ECHO = (sys.executable, Path(echo.__file__))
ROLES = (Role.CLIENT, Role.SERVER)
CLEAN_TURNS = 32  # bpf/exchange_judge.bpf.h: until a connection of two overlaps is believed again
FIRST_TURNS = 256  # of gRPC streams: 10 to 70 as a rule; more on a machine too busy to start all streams


def reasons(records: NDArray[np.void]) -> dict[str, int]:
    """Exchanges by why they are no event (NONE: they are)."""
    return dict(Counter(Excluded(reason).name for reason in records["excluded"].tolist()))


def of_role(records: NDArray[np.void], role: Role) -> NDArray[np.void]:
    return records[records["role"] == role]


def events(records: NDArray[np.void], role: Role) -> int:
    """How many exchanges of a role the SLI counts."""
    return int(((records["role"] == role) & (records["excluded"] == Excluded.NONE)).sum())


def test_every_memcached_get_is_one_pair(session):
    """Text protocol, no handshake. The server's own counter is the oracle."""

    def ask(connection: socket.socket, line: bytes) -> bytes:
        connection.sendall(line)
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += connection.recv(4096)
        return answer

    def call(_: int) -> None:
        with socket.create_connection(ADDRESS) as connection:
            for _ in range(1_000):
                ask(connection, b"get key\r\n")

    def gets() -> int:
        with socket.create_connection(ADDRESS) as connection:
            return int(re.search(rb"STAT cmd_get (\d+)", ask(connection, b"stats\r\n"))[1])

    with memcached(PORT):
        before = gets()
        session.measure(PORT)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(call, range(8)))
        records = session.records(16_000)
        session.measure()
        counted = gets() - before
    tell(f"memcached {version('memcached', '--version')}", "get, 8 connections", counted, records)
    assert [len(of_role(records, role)) for role in ROLES] == [counted, counted] == [8_000, 8_000]
    assert (records["excluded"] == Excluded.NONE).all()
    assert len(session.pairs(records)[1]) == counted


@pytest.fixture(scope="module")
def pgbench() -> Iterator[Callable[..., list[str]]]:
    """A PostgreSQL with the tables of pgbench; its command."""
    command = partial(pg, POSTGRES_PORT, "pgbench")
    with postgres(POSTGRES_PORT):
        subprocess.run(command("-i", "-q", "postgres"), check=True, capture_output=True)
        yield command


@pytest.mark.parametrize("mode", ["simple", "extended"])
def test_every_pgbench_transaction_is_one_pair(session, pgbench, mode):
    """One turn of sign-in per connection (setupTurns: 1, trust) and a Terminate without an answer.

    pgbench asks for the scale and the partitions first, on a connection of its own.
    """
    session.measure(POSTGRES_PORT, setup_turns=1)
    bench = pgbench("-n", "-S", "-c", "4", "-t", "500", "-M", mode, "postgres")
    done = subprocess.run(bench, check=True, capture_output=True, text=True)
    transactions = int(re.search(r"actually processed: (\d+)/2000", done.stdout)[1])
    records = session.records_of_closed(2 * 5)
    software = f"PostgreSQL {version(postgres_programs() / 'postgres', '--version')}"
    tell(software, f"pgbench, {mode}", transactions + 2, records)
    for role in ROLES:
        mine = of_role(records, role)
        asked, left = mine[mine["response_bytes"] > 0], mine[mine["response_bytes"] == 0]
        assert reasons(asked) == {"SETUP": 5, "NONE": transactions + 2}
        assert (asked["outcome"] == Outcome.OK).all()
        assert len(left) == 5, "Terminate: teardown, or aborted where the machine took 100 ms from it to the FIN"
        assert ((left["excluded"] == Excluded.TEARDOWN) | (left["outcome"] == Outcome.ABORTED)).all()
    records = records[records["response_bytes"] > 0]
    assert len(session.pairs(records[records["excluded"] == Excluded.NONE])[1]) == transactions + 2


@pytest.mark.parametrize(("tls", "setup_turns"), [("", 0), ("TLSv1.2", 2), ("TLSv1.3", 1)])
def test_every_request_of_wrk_to_nginx_is_one_exchange(session, tmp_path, tls, setup_turns):
    """nginx logs what it answers. wrk leaves up to one request per connection unanswered when its time is up.

    Handshake turns: none; TLS 1.2: 2; TLS 1.3: 1, and each of the server's two tickets may end a turn before the first
    request, or cross it, which excludes it. Two that cross are two overlaps: the next 32 turns are not believed.
    """
    connections = 4
    tickets = 2 * connections if tls == "TLSv1.3" else 0
    more = encrypted(tmp_path, PORT, tls) if tls else ""
    with nginx(tmp_path, PORT, f'return 200 "{"x" * 1000}";', more=more):
        session.measure(PORT, setup_turns=setup_turns)
        url = f"http{'s' if tls else ''}://{ADDRESS[0]}:{PORT}/"
        done = subprocess.run(
            ["wrk", "-t", "1", "-c", str(connections), "-d", "1s", url], check=True, capture_output=True, text=True
        )
        counted = int(re.search(r"(\d+) requests in", done.stdout)[1])
        records = session.records_of_closed(2 * connections)
    logged = len((tmp_path / "access.log").read_text().splitlines())
    tell(f"nginx {version('nginx', '-v')}", f"wrk, {tls or 'plain'}, setupTurns {setup_turns}", logged, records)
    crossed = {}
    for role in ROLES:
        found = reasons(of_role(records, role))
        assert found.get("SETUP", 0) == setup_turns * connections
        assert found.get("OVERLAP", 0) <= tickets
        assert found.get("PIPELINED", 0) <= tickets // 2 * (CLEAN_TURNS + 2)
        crossed[role] = found.get("OVERLAP", 0) + found.get("PIPELINED", 0)
    assert logged - crossed[Role.SERVER] <= events(records, Role.SERVER) <= logged + tickets
    assert counted - crossed[Role.CLIENT] <= events(records, Role.CLIENT) <= counted + connections + tickets
    assert len(session.pairs(records)[1]) >= counted - max(crossed.values()) - tickets


def test_every_framed_thrift_call_is_one_pair(session):
    """thriftpy2, TFramedTransport; no handshake."""

    def call(_: int) -> int:
        with client_context(echo.THRIFT, *ADDRESS, **echo.FRAMED) as client:
            return sum(client.echo("x" * size) == "x" * size for size in range(500))

    with running(*ECHO, "thrift", PORT, port=PORT):
        session.measure(PORT)
        with ThreadPoolExecutor(4) as pool:
            counted = sum(pool.map(call, range(4)))
        records = session.records_of_closed(8)
    tell(f"thriftpy2 {metadata.version('thriftpy2')}", "framed calls, 4 connections", counted, records)
    assert [len(of_role(records, role)) for role in ROLES] == [counted, counted]
    assert (records["excluded"] == Excluded.NONE).all()
    assert len(session.pairs(records)[1]) == counted


def call_grpc(streams: int, calls: int) -> None:
    """`calls` on one connection, `streams` of them at a time."""

    def run(_: int) -> None:
        for _ in range(calls // streams):
            assert call(b"x" * 100) == b"x" * 100

    with grpc.insecure_channel(f"{ADDRESS[0]}:{PORT}") as channel:
        call = channel.unary_unary("/echo/Echo")
        with ThreadPoolExecutor(streams) as pool:
            list(pool.map(run, range(streams)))


def test_fifty_grpc_streams_are_no_events_beyond_the_first_turns_and_never_pair(session):
    with running(*ECHO, "grpc", PORT, port=PORT):
        session.measure(PORT)
        call_grpc(streams=50, calls=5_000)
        records = session.records_of_closed(2)
    tell(f"gRPC {grpc.__version__}", "50 streams on a connection", 5_000, records)
    for role in ROLES:
        mine = np.sort(of_role(records, role), order=["request_offset", "response_offset"])
        believed = np.flatnonzero(mine["excluded"] == Excluded.NONE)
        print(f"{role.name.lower()}: {len(believed)} events, the last one is turn {believed.max(initial=-1)}")
        assert len(mine) > FIRST_TURNS
        assert (believed < FIRST_TURNS).all()
        assert np.isin(mine["conn_class"][FIRST_TURNS:-1], (ExchangeClass.MULTIPLEXED, ExchangeClass.PIPELINED)).all()
    assert len(session.pairs(records)[1]) < FIRST_TURNS


def test_one_grpc_stream_is_classified_and_counted(session):
    """HTTP/2 settles windows and pings between the turns: what overlaps is excluded, the rest is one call each."""
    with running(*ECHO, "grpc", PORT, port=PORT):
        session.measure(PORT)
        call_grpc(streams=1, calls=500)
        records = session.records_of_closed(2)
    tell(f"gRPC {grpc.__version__}", "one stream", 500, records)
    _, pairs = session.pairs(records)
    print(f"gRPC, 1 stream: {len(pairs)} pairs of 500 calls")
    _, counts = session.programs.counts()
    assert counts["classes"].sum() == len(records)
    assert counts["outcomes"].sum() + counts["excluded"].sum() == len(records)


def test_a_client_with_a_window_of_eight_is_no_event_beyond_the_first_turns_and_never_pairs(session):
    """It sends request k + 8 as soon as response k is there, which the server sends after 1 ms of work.

    On the client's side turns alternate: each response comes to a peer that has all of the requests. The server's end
    finds out and tells the client's.
    """
    requests, window = 500, 8

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            for _ in range(requests):
                connection.recv(64, socket.MSG_WAITALL)
                time.sleep(0.001)
                connection.sendall(bytes(200))

    session.measure(PORT)
    with socket.create_server(ADDRESS) as listener:
        server = threading.Thread(target=answer, args=(listener,))
        server.start()
        with socket.create_connection(ADDRESS) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(bytes(64) * window)
            for answered in range(requests):
                client.recv(200, socket.MSG_WAITALL)
                if answered + window < requests:
                    client.sendall(bytes(64))
        server.join()
    records = session.records_of_closed(2)
    tell("Python sockets", f"a window of {window} requests", requests, records)
    for role in ROLES:
        mine = np.sort(of_role(records, role), order="request_offset")[8:]
        assert len(mine) >= requests // window - 8, "a machine that is held up takes as many at a time"
        assert (mine["excluded"] == Excluded.PIPELINED).all()
        assert (mine["conn_class"] == ExchangeClass.PIPELINED).all()
    assert len(session.pairs(records)[1]) <= 2
