"""docs/design/measurement.md, "Classes", row by row, each class by a connection that does what its row describes."""

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.peers import Peers

pytestmark = pytest.mark.root

PORT = free_port()
MIB = 1 << 20
MS = 1_000_000
ROLES = (Role.CLIENT, Role.SERVER)
IPPROTO_MPTCP = 262  # linux/in.h
SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
BPF_MAP_CREATE, BPF_MAP_UPDATE_ELEM, BPF_MAP_TYPE_SOCKMAP = 0, 2, 15  # linux/bpf.h


@pytest.fixture
def peers(session) -> Iterator[Peers]:
    """A connection that is measured from its beginning."""
    session.measure(PORT)
    connected = Peers(PORT)
    yield connected
    connected.close()


def of_role(records: NDArray[np.void], role: Role) -> NDArray[np.void]:
    return np.sort(records[records["role"] == role], order=["request_offset", "response_offset"])


def names(records: NDArray[np.void]) -> list[tuple[str, str]]:
    """(Class, reason) of each."""
    return [
        (ExchangeClass(int(record["conn_class"])).name, Excluded(int(record["excluded"])).name) for record in records
    ]


def assert_both_sides(records: NDArray[np.void], *expected: tuple[str, str]) -> None:
    for role in ROLES:
        assert names(of_role(records, role)) == list(expected), role.name


def test_two_turns_make_a_pingpong(peers, session):
    for _ in range(3):
        peers.turn()
    peers.close()
    assert_both_sides(session.records_of_closed(2), ("UNKNOWN", "NONE"), ("PINGPONG", "NONE"), ("PINGPONG", "NONE"))


def test_a_connection_that_closes_after_its_only_clean_turn_is_pingpong(peers, session):
    peers.turn()
    peers.close()
    assert_both_sides(session.records_of_closed(2), ("PINGPONG", "NONE"))


def test_a_message_of_more_than_a_mebibyte_is_a_stream(peers, session):
    peers.turn()
    peers.turn()
    for size in (MIB, MIB + 1):
        peers.send(peers.client, b"request")
        answer = threading.Thread(target=peers.server.sendall, args=(bytes(size),))
        answer.start()
        assert len(peers.client.recv(size, socket.MSG_WAITALL)) == size
        answer.join()
    peers.close()
    records = session.records_of_closed(2)
    for role in ROLES:
        assert names(of_role(records, role))[-2:] == [("PINGPONG", "NONE"), ("STREAM", "NONE")]


def test_a_message_that_takes_more_than_a_second_to_send_is_a_stream(peers, session):
    """Told by the sender, whose own pauses they are."""
    peers.turn()
    for _ in range(22):
        peers.client.sendall(b"piece")
        time.sleep(0.05)  # shorter than the pause that would part them
    assert peers.server.recv(110, socket.MSG_WAITALL) == 22 * b"piece"
    peers.send(peers.server, b"response")
    peers.close()
    client = of_role(session.records_of_closed(2), Role.CLIENT)
    assert names(client)[1] == ("STREAM", "NONE")


def test_a_greeting_and_the_turn_that_answers_it_are_setup(peers, session):
    peers.send(peers.server, b"greeting")
    peers.turn(b"login", b"welcome")
    peers.turn()
    peers.turn()
    peers.close()
    assert_both_sides(
        session.records_of_closed(2),
        ("SETUP", "SETUP"),
        ("SETUP", "SETUP"),
        ("PINGPONG", "NONE"),
        ("PINGPONG", "NONE"),
    )


@pytest.mark.parametrize("turns", [1, 4, 8])
def test_the_first_turns_are_setup_when_the_target_says_so(session, turns):
    session.measure(PORT, setup_turns=turns)
    peers = Peers(PORT)
    for _ in range(turns + 2):
        peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    for role in ROLES:
        reasons = [reason for _, reason in names(of_role(records, role))]
        assert reasons == turns * ["SETUP"] + 2 * ["NONE"]


def test_server_bytes_after_a_flush_are_push(session):
    session.measure(PORT, idle_timeout_ns=100 * MS)
    peers = Peers(PORT)
    peers.turn()
    peers.turn()

    def flushed() -> bool:
        session.programs.flush()
        return len(session.records()) == 4

    wait_until(flushed, "both turns of both sides")
    peers.send(peers.server, b"news")
    peers.send(peers.client, b"thanks")
    time.sleep(0.3)  # longer than the pause, 200 ms
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    for role in ROLES:
        pushed = of_role(records, role)
        assert sorted(names(pushed)) == [
            ("PINGPONG", "NONE"),
            ("PINGPONG", "NONE"),
            ("PUSH", "PUSH"),
            ("UNKNOWN", "NONE"),
        ]
        assert pushed["request_bytes"][pushed["excluded"] == Excluded.PUSH].tolist() == [len(b"thanks")]


def test_last_words_without_an_answer_are_teardown_and_a_client_that_gave_up_is_not(session):
    """PostgreSQL's Terminate, TLS close_notify; against a client that waits 150 ms for its answer and closes."""
    session.measure(PORT)
    patient = Peers(PORT)
    patient.turn()
    patient.send(patient.client, b"request")
    time.sleep(0.15)  # longer than the 100 ms of a goodbye
    patient.close()
    records = session.records_of_closed(2)
    assert_both_sides(records, ("UNKNOWN", "NONE"), ("PINGPONG", "NONE"))
    for role in ROLES:
        assert of_role(records, role)["outcome"].tolist() == [Outcome.OK, Outcome.ABORTED]


def overlap(peers: Peers) -> None:
    """One turn whose next request comes before its response: the server alone can tell (docs/limits.md)."""
    peers.client.sendall(b"request")
    assert peers.server.recv(7) == b"request"
    peers.client.sendall(b"request")
    wait_until(lambda: peers.server.recv(7, socket.MSG_PEEK) == b"request", "the next request")
    peers.server.sendall(b"response")
    assert peers.client.recv(8) == b"response"
    assert peers.server.recv(7) == b"request"
    peers.server.sendall(b"response")
    assert peers.client.recv(8) == b"response"


def test_one_overlap_is_excluded_alone_two_are_pipelined_and_32_clean_turns_lead_back(peers, session):
    for _ in range(4):
        peers.turn()
    overlap(peers)
    for _ in range(4):
        peers.turn()
    overlap(peers)
    for _ in range(50):
        peers.turn()
    peers.close()
    server = names(of_role(session.records_of_closed(2), Role.SERVER))
    overlapped = [number for number, (_, reason) in enumerate(server) if reason == "OVERLAP"]
    pipelined = [number for number, (kind, _) in enumerate(server) if kind == "PIPELINED"]
    print(f"server: {len(server)} exchanges, OVERLAP at {overlapped}, PIPELINED from {pipelined[0]} to {pipelined[-1]}")
    assert len(overlapped) == 1
    assert pipelined == list(range(pipelined[0], pipelined[0] + 32))
    assert server[pipelined[-1] + 1 :] == (len(server) - pipelined[-1] - 1) * [("PINGPONG", "NONE")]


def test_the_server_end_tells_the_client_end_of_its_host_that_requests_overtake_responses(peers, session):
    told = session.programs.map("overlapping")
    for _ in range(4):
        overlap(peers)
    assert len(list(told.keys())) == 1
    for _ in range(50):
        peers.turn()
    assert not list(told.keys())
    for _ in range(2):
        overlap(peers)
    peers.close()
    records = session.records_of_closed(2)
    wait_until(lambda: not list(told.keys()), "the server's socket is gone")
    client, server = (np.array([kind for kind, _ in names(of_role(records, role))]) for role in ROLES)
    print(f"pipelined: {sum(client == 'PIPELINED')} at the client, {sum(server == 'PIPELINED')} at the server")
    assert abs(sum(client == "PIPELINED") - sum(server == "PIPELINED")) <= 4
    assert (client[-12:-4] == "PINGPONG").all()


def test_a_connection_that_overlapped_for_long_is_believed_after_as_many_clean_turns(peers, session):
    for _ in range(100):
        overlap(peers)
    for _ in range(120):
        peers.turn()
    peers.close()
    server = names(of_role(session.records_of_closed(2), Role.SERVER))
    pipelined = np.flatnonzero([kind == "PIPELINED" for kind, _ in server])
    print(f"100 overlaps, then pipelined for {len(pipelined) + 1 - 100} turns more")
    assert (np.diff(pipelined) == 1).all()
    assert 96 <= len(pipelined) + 1 - 100 <= 100


def test_a_connection_that_relapses_is_believed_after_1024_turns(peers, session):
    for turns in (70, 1100):
        for _ in range(2):
            overlap(peers)
        for _ in range(turns):
            peers.turn()
    peers.close()
    server = names(of_role(session.records_of_closed(2), Role.SERVER))
    pipelined = np.flatnonzero([kind == "PIPELINED" for kind, _ in server])
    first, second = np.split(pipelined, np.flatnonzero(np.diff(pipelined) > 1) + 1)
    print(f"pipelined for {len(first)}, then for {len(second)} turns")
    assert 32 <= len(first) <= 34
    assert 1024 <= len(second) <= 1026


def test_two_ends_that_write_before_they_read_are_no_events(peers, session):
    """Real multiplexing, with bytes that cross on their way, is in test_servers.py: gRPC with 50 streams."""
    for _ in range(20):
        for end in (peers.client, peers.server):
            end.sendall(b"frame")
        for end in (peers.client, peers.server):
            wait_until(lambda end=end: end.recv(5, socket.MSG_PEEK) == b"frame", "the other's frame")
            end.sendall(b"frame")
        for end in (peers.client, peers.server):
            wait_until(lambda end=end: len(end.recv(10, socket.MSG_PEEK)) == 10, "both frames")
            end.recv(10)
    peers.close()
    records = session.records_of_closed(2)
    for role in ROLES:
        mine = of_role(records, role)
        assert (mine["excluded"] != Excluded.NONE).sum() >= len(mine) - 2
        assert mine["conn_class"][-1] == ExchangeClass.PIPELINED


@pytest.fixture
def multipath() -> None:
    enabled = subprocess.run(["sysctl", "-n", "net.mptcp.enabled"], check=False, capture_output=True, text=True)
    assert enabled.stdout.strip() == "1", f"this kernel has no Multipath TCP: {enabled.stderr}"


def test_multipath_tcp_is_one_exchange_that_says_unsupported(session, multipath):
    session.measure(PORT)
    peers = Peers(PORT, protocol=IPPROTO_MPTCP)
    for _ in range(10):
        peers.turn()
    peers.close()
    plain = Peers(PORT)
    plain.turn()
    plain.close()
    records = session.records(4)
    session.programs.flush()
    assert_both_sides(session.records(), ("UNSUPPORTED", "UNSUPPORTED"), ("PINGPONG", "NONE"))
    assert len(set(records["sock_cookie"])) == 4
    _, counts = session.programs.counts()
    assert counts["excluded"][:, Excluded.UNSUPPORTED].sum() == 2
    assert counts["classes"][:, ExchangeClass.UNSUPPORTED].sum() == 2


def test_a_multipath_listener_that_takes_a_plain_client_is_measured(session, multipath):
    """Go's listeners ask for Multipath TCP by default; their clients mostly do not."""
    session.measure(PORT)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", PORT))
        listener.listen()
        with socket.create_connection(("127.0.0.1", PORT)) as client:
            server, _ = listener.accept()
            with server:
                for _ in range(5):
                    client.sendall(b"request")
                    assert server.recv(7) == b"request"
                    server.sendall(b"response")
                    assert client.recv(8) == b"response"
    records = session.records_of_closed(2)
    assert [(records["role"] == role).sum() for role in ROLES] == [5, 5]
    assert (records["excluded"] == Excluded.NONE).all()


def bpf(command: int, attributes: bytes) -> int:
    """The system call, with attributes packed as union bpf_attr."""
    buffer = ctypes.create_string_buffer(attributes, 128)
    result: int = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, command, buffer, len(attributes))
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result


def test_a_socket_that_is_put_into_a_sockmap_says_so_once_and_is_left_alone(peers, session):
    for _ in range(3):
        peers.turn()
    sockmap = bpf(BPF_MAP_CREATE, struct.pack("IIIII", BPF_MAP_TYPE_SOCKMAP, 4, 4, 1, 0))
    key, value = ctypes.c_uint32(0), ctypes.c_uint32(peers.server.fileno())
    entry = struct.pack("I4xQQQ", sockmap, ctypes.addressof(key), ctypes.addressof(value), 0)
    bpf(BPF_MAP_UPDATE_ELEM, entry)
    for _ in range(3):
        peers.turn()
    peers.close()
    os.close(sockmap)
    wait_until(lambda: len(of_role(session.records(), Role.CLIENT)) == 6, "the client's six turns")
    server = names(of_role(session.records(), Role.SERVER))
    print(f"server: {server}")
    assert server.count(("UNSUPPORTED", "UNSUPPORTED")) == 1
    assert len(server) == 3
    assert (of_role(session.records(), Role.CLIENT)["excluded"] == Excluded.NONE).all()
