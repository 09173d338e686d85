"""Requests that overtake responses: docs/design/measurement.md, "Classes", `pipelined` and `multiplexed`.

How many overlaps make them, at which end they are seen, and after how many clean turns a connection is believed again.
"""

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.calls import ROLES
from tests.truth.peers import Peers
from tests.truth.session import Session
from tests.truth.sides import names, of_role
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()


@pytest.fixture
def peers(session: Session) -> Iterator[Peers]:
    """A connection that is measured from its beginning, and never pauses: no stalled machine looks as if it did."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    connected = Peers(PORT)
    yield connected
    connected.close()


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


def test_pipelined_requests_are_no_events_at_the_server_and_never_pair(session):
    """The client always has one request ahead. Its own side sees turns that alternate: only the server can tell."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.client.sendall(b"request")
    for _ in range(40):
        peers.server.recv(7)
        peers.client.sendall(b"request")
        peers.server.sendall(b"answer")
        peers.client.recv(6)
    peers.close()
    records = session.records_of_closed(2)
    server = of_role(records, Role.SERVER)
    print(f"server: {np.bincount(server['excluded'])} by reason, {np.bincount(server['conn_class'])} by class")
    assert (server["excluded"][1:] != Excluded.NONE).all()
    assert (server["conn_class"][2:-1] == ExchangeClass.PIPELINED).all()
    assert len(session.pairs(records)[1]) <= 1


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
