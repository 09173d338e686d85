"""Whose turn it is when a connection ends: docs/design/measurement.md, "State machine"; goodbyes, and failures."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from latencyprobe_agent.vocabulary.records import Role
from tests.bpf.told_turns import PAUSE_NS, assert_turns, fall_silent, two_turns
from tests.support.ports import free_port
from tests.truth.calls import ROLES
from tests.truth.peers import Peers, reset
from tests.truth.sides import of_role

pytestmark = pytest.mark.root

PORT = free_port()


@pytest.fixture
def peers(session) -> Iterator[Peers]:
    with two_turns(session, PORT) as connected:
        yield connected


def test_what_a_server_says_before_it_closes_an_idle_connection_is_its_goodbye(session):
    """MySQL's error of a timeout, TLS's close_notify."""
    session.measure(PORT, pause_ns=PAUSE_NS, idle_timeout_ns=PAUSE_NS)
    peers = Peers(PORT)
    peers.turn()
    peers.turn()
    fall_silent()
    session.programs.flush()
    peers.server.sendall(b"idle for too long")
    peers.server.close()
    assert peers.client.recv(99, socket.MSG_WAITALL) == b"idle for too long"
    peers.close()
    assert_turns(session.records_of_closed(2), "TEARDOWN")


TERMINATE, CLOSE_NOTIFY = bytes(27), bytes(24)  # as long as these of PostgreSQL are in TLS 1.3


@pytest.mark.parametrize("first", ROLES, ids=lambda role: role.name.lower())
def test_a_goodbye_that_tls_answers_is_none_of_the_servers_rpcs_whoever_leaves_first(session, first):
    """PostgreSQL answers Terminate by close_notify and leaves, maybe before its client has gone on to do so."""
    session.measure(PORT, pause_ns=PAUSE_NS, tls=True)
    peers = Peers(PORT)
    for _ in range(3):  # two of set-up
        peers.turn()
    peers.send(peers.client, TERMINATE)
    if first is Role.CLIENT:
        peers.client.sendall(CLOSE_NOTIFY)
        peers.client.close()
    peers.server.sendall(CLOSE_NOTIFY)
    peers.server.close()
    peers.close()
    assert_turns(session.records_of_closed(2), "OK", "TEARDOWN", roles=(Role.SERVER,))


@pytest.mark.parametrize("first", ROLES, ids=lambda role: role.name.lower())
def test_last_words_are_a_goodbye_whoever_closes_first(peers, session, first):
    """MySQL's COM_QUIT: the server may be the first to close."""
    peers.send(peers.client, b"quit")
    if first is Role.SERVER:
        peers.server.close()
        peers.client.close()
    peers.close()
    assert_turns(session.records_of_closed(2), "TEARDOWN", roles=(Role.CLIENT,))
    if first is Role.CLIENT:
        assert_turns(session.records_of_closed(2), "TEARDOWN", roles=(Role.SERVER,))


def test_a_server_that_leaves_without_an_answer_has_failed_when_it_left(peers, session):
    """The client closes its end a second later: its half ends when the FIN had come."""
    peers.send(peers.client, b"request")
    peers.server.close()
    assert peers.client.recv(1) == b""
    seen_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    fall_silent()
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "UNANSWERED")
    client, server = (of_role(records, role)[2] for role in ROLES)
    assert client["read_last_ns"] < seen_ns
    assert server["send_end_ns"] < seen_ns


def test_what_a_client_says_after_the_servers_last_words_is_no_request(peers, session):
    """TLS: the server answers, says close_notify and closes; the client's close_notify meets a RST."""
    peers.client.sendall(b"request")
    assert peers.server.recv(7) == b"request"
    peers.server.sendall(b"response")
    peers.server.close()
    assert peers.client.recv(8) == b"response"
    assert peers.client.recv(1) == b""
    with contextlib.suppress(OSError):
        peers.client.sendall(b"bye")
        peers.client.sendall(b"bye")
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "OK", "TEARDOWN", roles=(Role.CLIENT,))
    assert_turns(records, "OK", roles=(Role.SERVER,))


def test_a_reset_is_a_failure_of_what_was_asked(peers, session):
    peers.send(peers.client, b"request")
    reset(peers.server)
    with pytest.raises(ConnectionResetError):
        peers.client.recv(1)
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "RESET", roles=(Role.CLIENT,))
    assert_turns(records, "UNANSWERED", roles=(Role.SERVER,))
