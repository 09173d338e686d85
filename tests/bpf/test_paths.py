"""Every way that bytes take into and out of the kernel, one connection each.

paths.c takes turns by the named calls and stamps its clock around each message: every turn must be one exchange of the
right size on both sides, and each stamp must lie inside the calls that it tells of.
"""

import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.peers import Peers, reset

pytestmark = pytest.mark.root

PORT = free_port()
MIB = 1 << 20
KERNEL_REFUSES = 77  # exit code of paths.c
STAMPS = ("sent_from", "sent_to", "read_from", "read_to")


def run_paths(
    send: str,
    receive: str,
    *flags: str,
    host: str = "127.0.0.1",
    turns: int,
    request: int,
    response: int,
    prefix: Sequence[str] = (),
):
    """Stamps int64[2 (client, server), turns, 4 (STAMPS)]. `prefix`: a command that runs it in a namespace."""
    sizes = map(str, (turns, request, response))
    words = [*prefix, workload.build("paths"), send, receive, host, str(PORT), *sizes, *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != KERNEL_REFUSES, f"this kernel refuses io_uring: {done.stderr}"
    assert done.returncode == 0, done.stderr
    lines = np.array([line.split() for line in done.stdout.splitlines()], np.int64)
    return np.stack([lines[lines[:, 0] == role][:, 2:] for role in (Role.CLIENT, Role.SERVER)])


def of_role(records: NDArray[np.void], role: Role) -> NDArray[np.void]:
    return np.sort(records[records["role"] == role], order="request_offset")


def assert_each_turn_is_one_pair(session, stamps, request: int, response: int, unseen_reads: bool = False):
    """Returns the records. `unseen_reads`: no receive call tells of them (flag READ_APPROX)."""
    turns = stamps.shape[1]
    records = session.records_of_closed(2)
    assert len(records) == 2 * turns
    for log, role in zip(stamps, (Role.CLIENT, Role.SERVER), strict=True):
        mine = of_role(records, role)
        assert (mine["excluded"] == Excluded.NONE).all()
        assert (mine["outcome"] == Outcome.OK).all()
        assert (mine["request_bytes"] == request).all()
        assert (mine["response_bytes"] == response).all()
        assert mine["request_offset"].tolist() == [request * turn for turn in range(turns)]
        assert mine["response_offset"].tolist() == [response * turn for turn in range(turns)]
        sent_from, sent_to, read_from, read_to = log.T
        for stamp in ("send_start_ns", "send_end_ns"):
            assert (sent_from <= mine[stamp]).all(), stamp
            assert (mine[stamp] <= sent_to).all(), stamp
        seen = mine["flags"] & ExchangeFlags.READ_APPROX == 0
        if unseen_reads:
            assert not seen.any()
        else:
            assert seen.all()
            assert (mine["flags"] & ExchangeFlags.SEND_APPROX == 0).all()
            assert (read_from <= mine["read_last_ns"]).all()
            assert (mine["read_last_ns"] <= read_to).all()
    assert len(session.pairs(records)[1]) == turns
    return records


@pytest.mark.parametrize(
    "send", ["write", "send", "writev", "sendmsg", "sendmmsg", "zerocopy", "io_uring", "io_uring_zerocopy"]
)
def test_every_send_call_is_stamped_inside_itself(session, send):
    session.measure(PORT)
    stamps = run_paths(send, "recv", turns=20, request=5_000, response=70_000)
    records = assert_each_turn_is_one_pair(session, stamps, 5_000, 70_000)
    print(f"{send}: 20 turns, send calls {np.unique(records['send_calls']).tolist()}")


@pytest.mark.parametrize(
    "receive", ["read", "recv", "readv", "recvmsg", "recvmmsg", "waitall", "peek", "pieces", "trunc", "io_uring"]
)
def test_every_receive_call_is_stamped_inside_itself(session, receive):
    session.measure(PORT)
    stamps = run_paths("send", receive, turns=20, request=100, response=2_000)
    records = assert_each_turn_is_one_pair(session, stamps, 100, 2_000)
    client = of_role(records, Role.CLIENT)
    print(f"{receive}: 20 turns, receive calls of the client {np.unique(client['recv_calls']).tolist()}")
    if receive == "pieces":
        assert (client["recv_calls"] == 286).all(), "2,000 bytes in pieces of 7"
        assert (client["read_first_ns"] < client["read_last_ns"]).all()


def test_zero_copy_receive_has_no_stamp_rather_than_a_late_one(session):
    session.measure(PORT)
    stamps = run_paths("send", "zerocopy", turns=20, request=100, response=2_000)
    records = assert_each_turn_is_one_pair(session, stamps, 100, 2_000, unseen_reads=True)
    assert (of_role(records, Role.CLIENT)["read_last_ns"] == 0).all()
    server = of_role(records, Role.SERVER)
    assert (server["read_last_ns"] == server["send_start_ns"]).all()


@pytest.mark.parametrize("host", ["::1", "::ffff:127.0.0.1"])
def test_ipv6_and_mapped_addresses_take_the_same_ways(session, host):
    session.measure(PORT)
    stamps = run_paths("sendmsg", "recvmsg", host=host, turns=20, request=100, response=2_000)
    records = assert_each_turn_is_one_pair(session, stamps, 100, 2_000)
    mapped = bytes(10) + b"\xff\xff\x7f\x00\x00\x01"
    expected = socket.inet_pton(socket.AF_INET6, "::1") if host == "::1" else mapped
    assert {bytes(address) for address in records["peer_addr"]} == {expected}


@pytest.mark.parametrize(("request_bytes", "response_bytes"), [(1, 1), (1, 100 * MIB), (100 * MIB, 1)])
def test_messages_of_one_byte_to_100_mib(session, request_bytes, response_bytes):
    session.measure(PORT)
    stamps = run_paths("write", "read", turns=3, request=request_bytes, response=response_bytes)
    records = assert_each_turn_is_one_pair(session, stamps, request_bytes, response_bytes)
    large = max(request_bytes, response_bytes) > MIB
    assert (records["conn_class"] == ExchangeClass.STREAM).all() == large


@pytest.fixture
def namespace() -> Iterator[tuple[str, ...]]:
    """Command prefix that runs inside a network namespace with nothing but loopback."""
    name = f"lp-{os.getpid()}-paths"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize(
    ("setting", "excluded"),
    [(0x607, Excluded.TFO), (0x1, Excluded.NONE)],
    ids=["accepted without a cookie", "refused by the server"],
)
def test_a_request_in_the_syn_is_excluded_and_the_next_ones_are_not(session, namespace, setting, excluded):
    subprocess.run([*namespace, "sysctl", "-qw", f"net.ipv4.tcp_fastopen={setting}"], check=True)
    session.measure(PORT)
    run_paths("send", "recv", "fastopen", turns=10, request=100, response=1_000, prefix=namespace)
    records = session.records_of_closed(2)
    assert len(records) == 20
    for role in (Role.CLIENT, Role.SERVER):
        mine = np.sort(records[records["role"] == role], order="response_offset")
        assert mine["excluded"].tolist() == [excluded] + 9 * [Excluded.NONE]
        assert mine["response_bytes"].tolist() == 10 * [1_000]
        assert mine["request_bytes"][1:].tolist() == 9 * [100]
    assert len(session.pairs(records)[1]) == (9 if excluded else 10)


@pytest.fixture
def peers(session) -> Iterator[Peers]:
    """A connection that is measured from its beginning."""
    session.measure(PORT)
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
        wait_until(lambda: peers.server.recv(1, socket.MSG_OOB) == b"!", "the urgent byte")
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
    session.measure(PORT)
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
