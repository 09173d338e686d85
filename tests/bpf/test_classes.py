"""docs/design/measurement.md, "Classes", row by row, each class by a connection that does what its row describes.

Elsewhere: `pipelined` and `multiplexed`, test_overlaps.py; `streaming` and `oneway`, test_turns.py; `peer`,
test_replicas.py.
"""

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.calls import ROLES
from tests.truth.peers import Peers
from tests.truth.sides import names, of_role
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
MIB = 1 << 20
MS = 1_000_000
IPPROTO_MPTCP = 262  # linux/in.h
SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
BPF_MAP_CREATE, BPF_MAP_UPDATE_ELEM, BPF_MAP_TYPE_SOCKMAP = 0, 2, 15  # linux/bpf.h


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
        mine = of_role(records, role)
        held_up = mine["send_end_ns"][-2] - mine["send_start_ns"][-2] > 1_000 * MS  # its reader, by this machine
        assert names(mine)[-2:] == [("STREAM" if held_up else "PINGPONG", "NONE"), ("STREAM", "NONE")]


def test_a_message_that_takes_more_than_a_second_to_send_is_a_stream(session):
    """Told by the sender, whose own pauses they are."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.turn()
    for _ in range(22):
        peers.client.sendall(b"piece")
        time.sleep(0.05)
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


def test_a_server_that_speaks_first_is_setup_and_one_that_speaks_unasked_is_push(session):
    session.measure(PORT)
    peers = Peers(PORT)
    peers.server.sendall(b"greeting")
    peers.client.recv(100)
    peers.turn(b"login", b"welcome")
    peers.turn()
    peers.close()
    records = session.records(6)
    for role in (Role.CLIENT, Role.SERVER):
        mine = np.sort(records[records["role"] == role], order="response_offset")
        assert mine["excluded"].tolist() == [Excluded.SETUP, Excluded.SETUP, Excluded.NONE]


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
    session.measure(PORT, idle_timeout_ns=100 * MS, pause_ns=1_000 * MS)
    peers = Peers(PORT)
    peers.turn()
    peers.turn()

    def flushed() -> bool:
        session.programs.flush()
        return len(session.records()) == 4

    wait_until(flushed, "both turns of both sides")
    peers.send(peers.server, b"news")
    peers.send(peers.client, b"thanks")
    time.sleep(1.3)  # longer than the pause
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
