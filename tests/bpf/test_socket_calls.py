"""What an application does with its socket besides sending and receiving: it peeks, splices, shuts down, shares it.

Every call that sends or receives: test_paths.py.
"""

import os
import socket
import threading
import time

import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.truth.peers import Peers
from tests.truth.sides import of_role
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000


def test_peeking_is_not_reading(session):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.client.sendall(b"request")
    assert peers.server.recv(100, socket.MSG_PEEK) == b"request"
    peeked_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert peers.server.recv(100) == b"request"
    peers.server.sendall(b"response")
    peers.client.recv(100)
    peers.close()
    server = of_role(session.records(2), Role.SERVER)[0]
    assert server["read_first_ns"] > peeked_ns
    assert server["recv_calls"] == 1


def test_sendfile_and_splice_move_messages_like_any_call(session, tmp_path):
    """The server answers by sendfile, the client reads by splice, which returns through no receive hook."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    (tmp_path / "answer").write_bytes(bytes(10_000))
    peers = Peers(PORT)
    pipe_out, pipe_in = os.pipe()
    with (tmp_path / "answer").open("rb") as answer:
        for _ in range(3):
            peers.client.sendall(b"request")
            peers.server.recv(100)
            assert os.sendfile(peers.server.fileno(), answer.fileno(), 0, 10_000) == 10_000
            missing = 10_000
            while missing:
                moved = os.splice(peers.client.fileno(), pipe_in, missing)
                assert len(os.read(pipe_out, moved)) == moved
                missing -= moved
    peers.close()
    os.close(pipe_in)
    os.close(pipe_out)
    records = session.records(6)
    assert (records["excluded"] == Excluded.NONE).all()
    assert (records["response_bytes"] == 10_000).all()
    client = of_role(records, Role.CLIENT)
    assert (client["flags"] & ExchangeFlags.READ_APPROX).all(), "the reads were not seen"
    assert (client["read_last_ns"] == 0).all(), "no stamp is better than that of the next request"
    assert len(session.pairs(records)[1]) == 3


@pytest.mark.usefixtures("needs_storage")
def test_who_reads_by_splice_knows_silence_too_once_a_flush_has_seen_that_all_was_read(session):
    """As proxies in Go do. Nobody answers the first of two lines; nobody has asked for the second of two news."""
    session.measure(PORT)
    peers = Peers(PORT)
    pipe_out, pipe_in = os.pipe()

    def say(sender: socket.socket, message: bytes) -> None:
        sender.sendall(message)
        receiver = peers.server if sender is peers.client else peers.client
        assert os.splice(receiver.fileno(), pipe_in, len(message)) == len(message)
        assert os.read(pipe_out, len(message)) == message

    for _ in range(2):
        say(peers.client, b"request")
        say(peers.server, b"response")
    for sender in (peers.client, peers.client, peers.server, peers.server):
        for _ in range(2):
            time.sleep(0.3)  # more than `pause`
            session.programs.flush()
        if sender is peers.client:
            say(sender, b"line")
        else:
            say(sender, b"news")
    peers.close()
    os.close(pipe_in)
    os.close(pipe_out)
    records = session.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        reasons = [Excluded(int(one)).name for one in of_role(records, role)["excluded"]]
        assert reasons == ["NONE", "NONE", "ONEWAY", "STREAMING", "PUSH"], role


def test_half_closed_connections_still_get_their_answer(session):
    """shutdown(SHUT_WR) after the request, as HTTP/1.0 clients do."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.client.sendall(b"request")
    peers.client.shutdown(socket.SHUT_WR)
    assert peers.server.recv(100) == b"request"
    assert peers.server.recv(100) == b""
    peers.server.sendall(b"response")
    peers.server.close()
    assert peers.client.recv(100) == b"response"
    peers.close()
    records = session.records(2)
    assert (records["excluded"] == Excluded.NONE).all()
    assert (records["outcome"] == Outcome.OK).all()
    assert (records["response_bytes"] == 8).all()
    assert len(session.pairs(records)[1]) == 1


def test_two_threads_on_one_socket_lose_nothing(session):
    """One thread only reads, another only writes, and the flush runs beside them."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS, idle_timeout_ns=3600 * 1000 * MS)
    peers = Peers(PORT)
    turns, asked = 2_000, threading.Semaphore(1)

    def serve() -> None:
        for _ in range(turns):
            peers.server.recv(100)
            peers.server.sendall(b"response")

    def read() -> None:
        for _ in range(turns):
            assert peers.client.recv(8, socket.MSG_WAITALL) == b"response"
            asked.release()

    threads = [threading.Thread(target=target) for target in (serve, read)]
    for thread in threads:
        thread.start()
    for _ in range(turns):
        asked.acquire()
        peers.client.sendall(b"request")
        session.programs.flush()
    for thread in threads:
        thread.join()
    peers.close()
    records = session.records(2 * turns)
    assert len(records) == 2 * turns
    assert (records["excluded"] == Excluded.NONE).all()
    assert set(records["conn_class"]) <= {ExchangeClass.UNKNOWN, ExchangeClass.PINGPONG}
    assert len(session.pairs(records)[1]) == turns
