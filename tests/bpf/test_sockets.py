"""What applications do with a socket, call by call: messages in pieces, urgent data, dual stack, half closes, resets,
and processes and threads that share it."""

import itertools
import os
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.peers import Peers, reset
from tests.truth.sides import of_role
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()


@pytest.fixture
def peers(session) -> Iterator[Peers]:
    """A connection that is measured from its beginning."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    connected = Peers(PORT)
    yield connected
    connected.close()


def test_a_message_cut_at_any_byte_of_its_header_stays_one(peers, session):
    """64 bytes of header, 36 of body: written in two pieces and read in one, written in one and read in two, both."""
    header, body = bytes(range(64)), bytes(36)
    message, turns = header + body, 0
    for cut in range(1, 65):
        for pieces, steps in itertools.product(((message,), (message[:cut], message[cut:])), ((), (cut,))):
            peers.send(peers.client, *pieces, read=steps)
            peers.send(peers.server, *pieces, read=steps)
            turns += 1
    peers.close()
    records = session.records_of_closed(2)
    print(f"{turns} turns, {len(records)} records")
    assert len(records) == 2 * turns
    assert (records["excluded"] == Excluded.NONE).all()
    assert (records["request_bytes"] == 100).all()
    assert (records["response_bytes"] == 100).all()
    client = of_role(records, Role.CLIENT)
    assert client["send_calls"].tolist() == [1, 1, 2, 2] * 64
    assert len(session.pairs(records)[1]) == turns


def test_urgent_data_is_part_of_its_message(peers, session):
    for _ in range(5):
        peers.client.send(b"reque")
        peers.client.send(b"!", socket.MSG_OOB)
        peers.client.send(b"st")
        wait_until(lambda: peers.server.recv(1, socket.MSG_OOB) == b"!", "the urgent byte", unready=OSError)
        got = b""
        while len(got) < 7:
            got += peers.server.recv(100)  # stops at the mark, then skips the urgent byte
        assert got == b"request"
        peers.send(peers.server, b"response")
    peers.close()
    records = session.records_of_closed(2)
    assert len(records) == 10
    assert (records["excluded"] == Excluded.NONE).all()
    assert (records["request_bytes"] == 8).all(), "seven bytes and an urgent one"
    assert len(session.pairs(records)[1]) == 5


def test_a_dual_stack_server_and_an_ipv4_client_know_each_other_by_ipv4(session):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT, "::", dial="127.0.0.1")
    assert peers.server.family == socket.AF_INET6
    assert peers.client.family == socket.AF_INET
    for _ in range(5):
        peers.send(peers.client, b"request")
        peers.send(peers.server, b"response")
    peers.close()
    records = session.records_of_closed(2)
    assert len(session.pairs(records)[1]) == 5
    mapped = bytes(10) + b"\xff\xff\x7f\x00\x00\x01"
    assert {bytes(address) for name in ("local_addr", "peer_addr") for address in records[name]} == {mapped}


def test_a_client_that_resets_in_the_middle_of_its_request_is_a_failure(peers, session):
    peers.send(peers.client, b"request")
    peers.send(peers.server, b"response")
    peers.send(peers.client, b"half a requ")
    reset(peers.client)
    records = session.records(4)
    client, server = (of_role(records, role) for role in (Role.CLIENT, Role.SERVER))
    assert (records["excluded"] == Excluded.NONE).all()
    assert client["outcome"].tolist() == [Outcome.OK, Outcome.ABORTED]
    assert server["outcome"].tolist() == [Outcome.OK, Outcome.RESET]


def test_a_reset_in_the_middle_of_a_response_fails_the_client_that_had_not_read_it(peers, session):
    peers.send(peers.client, b"request")
    peers.server.sendall(b"half a resp")
    wait_until(lambda: peers.client.recv(100, socket.MSG_PEEK) == b"half a resp", "the bytes came")
    reset(peers.server)
    wait_until(lambda: peers.client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "the reset")
    peers.client.close()
    records = session.records(2)
    assert (records["excluded"] == Excluded.NONE).all()
    assert of_role(records, Role.CLIENT)["outcome"].tolist() == [Outcome.RESET]
    assert of_role(records, Role.SERVER)["response_bytes"].tolist() == [11]


def test_a_server_that_closes_for_writing_only_still_reads(peers, session):
    """A half close by the server after its answer: what the client still says is its goodbye, and no request."""
    peers.send(peers.client, b"request")
    peers.send(peers.server, b"response")
    peers.server.shutdown(socket.SHUT_WR)
    assert peers.client.recv(1) == b""
    peers.send(peers.client, b"log line")
    peers.close()
    records = session.records(3)
    first = [of_role(records, role)[0] for role in (Role.CLIENT, Role.SERVER)]
    assert [record["response_bytes"] for record in first] == [8, 8]
    assert [record["outcome"] for record in first] == [Outcome.OK, Outcome.OK]
    assert [record["excluded"] for record in first] == [Excluded.NONE, Excluded.NONE]
    assert of_role(records, Role.CLIENT)[1:]["excluded"].tolist() == [Excluded.TEARDOWN]
    assert len(of_role(records, Role.SERVER)) == 1


def test_a_process_that_hands_its_socket_to_another_goes_on(peers, session):
    """fork() after accept(): reader and writer are told by the calls, not by who opened the connection."""
    peers.send(peers.client, b"request")
    child = os.fork()
    if not child:
        peers.server.sendall(b"response")
        os._exit(0)
    os.waitpid(child, 0)
    assert peers.client.recv(100) == b"response"
    peers.close()
    record = of_role(session.records_of_closed(2), Role.SERVER)[0]
    assert record["reader_tgid"] == os.getpid()
    assert record["writer_tgid"] == child


def test_a_reader_thread_and_a_writer_thread_share_a_socket_of_many_sizes(peers, session):
    """The server's two ends run in threads of their own; the client's pace keeps the turns."""
    sizes = np.random.default_rng(11).integers(1, 60_000, 500).tolist()
    arrived: list[int] = []
    more = threading.Condition()

    def read() -> None:
        for size in sizes:
            peers.server.recv(size, socket.MSG_WAITALL)
            with more:
                arrived.append(size)
                more.notify()

    def write() -> None:
        for turn, size in enumerate(sizes):
            with more:
                more.wait_for(lambda turn=turn: len(arrived) > turn)
            peers.server.sendall(bytes(size))

    threads = [threading.Thread(target=target) for target in (read, write)]
    for thread in threads:
        thread.start()
    for size in sizes:
        peers.client.sendall(bytes(size))
        peers.client.recv(size, socket.MSG_WAITALL)
    for thread in threads:
        thread.join()
    peers.close()
    records = session.records_of_closed(2)
    assert (records["excluded"] == Excluded.NONE).all()
    server = of_role(records, Role.SERVER)
    assert server["request_bytes"].tolist() == sizes
    assert server["response_bytes"].tolist() == sizes
    assert (server["reader_tid"] != server["writer_tid"]).all()
    assert len(session.pairs(records)[1]) == len(sizes)
