"""A socket that connects again, elsewhere, is another connection: for exchanges, streams and retransmits."""

import select
import socket
from random import Random

import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.signals.table import HANDSHAKES, RETRANSMITS
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded, Outcome, RetransmitKind, Role
from tests.truth.http2 import ASK, Connection, Type, frame
from tests.truth.netns import ONCE
from tests.truth.peers import Peers, disconnect
from tests.truth.recorder import alone
from tests.truth.sides import of_role
from tests.truth.streams import by_id

pytestmark = [pytest.mark.root, pytest.mark.hideable]

ELSEWHERE = "127.0.0.2"


def connect_again(client: socket.socket, port: int) -> socket.socket:
    """Connect to another address; return the server's end."""
    disconnect(client)
    with socket.create_server((ELSEWHERE, port)) as listener:
        client.connect((ELSEWHERE, port))
        return listener.accept()[0]


def go_elsewhere(peers: Peers, port: int) -> None:
    again = connect_again(peers.client, port)
    peers.server.close()
    peers.server = again


def test_each_connection_of_a_socket_is_measured_as_its_own(peers, session, port):
    peers.turn()
    peers.turn()
    go_elsewhere(peers, port)
    peers.turn()
    peers.turn()
    peers.close()
    records = session.records(8)
    client, server = of_role(records, Role.CLIENT), of_role(records, Role.SERVER)
    for one in (client, server):
        assert (one["excluded"] == Excluded.NONE).all()
        assert (one["outcome"] == Outcome.OK).all()
        assert one["request_bytes"].tolist() == [7] * 4
        assert sorted(one["request_offset"].tolist()) == [0, 0, 7, 7]
    assert sorted(bytes(address)[-4:] for address in client["peer_addr"]) == [
        bytes([127, 0, 0, last]) for last in (1, 1, 2, 2)
    ]
    assert len(session.pairs(records)[1]) == 4


@pytest.mark.usefixtures("needs_storage")
@pytest.mark.parametrize("answered", [False, True], ids=["unanswered", "unread"])
def test_what_was_open_ends_with_its_connection(peers, session, port, answered):
    peers.turn()
    peers.send(peers.client, b"request")
    if answered:
        peers.server.sendall(b"response")
        assert select.select([peers.client], [], [], 10)[0]
    go_elsewhere(peers, port)
    peers.turn()
    peers.close()
    records = session.records(6)
    client = records[records["role"] == Role.CLIENT]
    assert client["outcome"].tolist() == [Outcome.OK, Outcome.OK if answered else Outcome.ABORTED, Outcome.OK]
    assert client["response_bytes"].tolist() == [8, 8 if answered else 0, 8]
    assert (client["flags"] & ExchangeFlags.CLOSED != 0).tolist() == [False, True, True]
    assert (client["excluded"] == Excluded.NONE).all()


def test_a_socket_that_goes_where_no_target_is_is_measured_no_more(peers, session, port):
    peers.turn()
    with socket.create_server((ELSEWHERE, 0)) as listener:
        disconnect(peers.client)
        peers.client.connect(listener.getsockname())
        peers.server.close()
        peers.server = listener.accept()[0]
    peers.turn()
    go_elsewhere(peers, port)
    peers.turn()
    peers.close()
    records = session.records(4)
    assert len(of_role(records, Role.CLIENT)) == 2
    assert len(session.pairs(records)[1]) == 2


def test_a_socket_that_comes_from_where_no_target_is_is_measured_from_its_beginning(session, port):
    session.measure(port)
    with socket.create_server((ELSEWHERE, 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        with listener.accept()[0] as server:
            client.sendall(b"request")
            assert server.recv(7, socket.MSG_WAITALL)
        with connect_again(client, port) as server:
            for _ in range(2):
                client.sendall(b"request")
                assert server.recv(7, socket.MSG_WAITALL)
                server.sendall(b"response")
                assert client.recv(8, socket.MSG_WAITALL)
    records = session.records(4)
    for one in (of_role(records, Role.CLIENT), of_role(records, Role.SERVER)):
        assert (one["excluded"] == Excluded.NONE).all()
        assert one["request_offset"].tolist() == [0, 7]
    assert len(session.pairs(records)[1]) == 2


@pytest.mark.usefixtures("needs_storage")
def test_what_a_socket_waited_to_connect_is_known_though_it_comes_from_where_no_target_is(session, record, port):
    """Whether its handshake is asked for is looked up when it begins, by when its last connection must be forgotten."""
    session.measure(port, evidence=("handshakes",))
    recorder = record(HANDSHAKES)
    with socket.create_server((ELSEWHERE, 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        listener.accept()[0].close()
        connect_again(client, port).close()
        handshake = recorder.one(client, role=Role.CLIENT)
    assert handshake["connect_ns"] > 0
    assert handshake["flow"]["peer_port"] == port


@pytest.mark.parametrize("unread", [False, True], ids=["nothing unread", "unread"])
def test_open_streams_end_with_their_connection_and_those_of_the_next_are_told(streams, port, unread):
    streams.measure(port)
    first, dice = Connection.open(port), Random(1)
    first.greet()
    for stream in (1, 3, 5):
        first.asks.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
    first.settle(dice)
    if unread:
        first.answers.put(frame(Type.HEADERS, ASK, 1, bytes(10)))
        first.answers.send(1 << 20, dice)
        assert select.select([first.client], [], [], 10)[0]
    first.client.setblocking(True)
    second = Connection(first.client, connect_again(first.client, port))
    first.server.close()
    second.greet()
    for stream in (101, 103):
        second.asks.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
    second.settle(dice)
    for stream in (101, 103):
        second.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
    second.settle(dice)
    second.close()
    found = streams.records_of_ended()
    client, server = by_id(found, Role.CLIENT), by_id(found, Role.SERVER)
    assert client.keys() == server.keys() == {1, 3, 5, 101, 103}
    assert [client[stream]["outcome"] for stream in sorted(client)] == [Outcome.ABORTED] * 3 + [Outcome.OK] * 2
    assert (found["excluded"] == Excluded.NONE).all()
    assert {bytes(client[stream]["peer_addr"])[-1] for stream in (101, 103)} == {2}


@pytest.mark.usefixtures("needs_storage")
def test_a_tool_shows_a_retransmit_with_the_addresses_of_its_connection_and_counts_it_anew(lossy, port):
    with alone(RETRANSMITS, Filter(port=port)) as recorder:
        ((client, server),) = lossy.connect(port)
        ports = []
        for _ in range(2):
            ports.append(client.getsockname()[1])
            lossy.server.filter("input", f"tcp dport {port} meta length > 500 {ONCE} drop")
            client.sendall(bytes(1000))
            assert len(server.recv(1000, socket.MSG_WAITALL)) == 1000
            lossy.server.unfilter()
            server.close()
            disconnect(client)
            with lossy.server.inside(), socket.create_server(("", port)) as listener:
                client.connect(("10.99.0.2", port))
                server = listener.accept()[0]
        client.close()
        server.close()
        sent = recorder.until(lambda some: len(some.rec) >= 2, "both", kind=RetransmitKind.SEGMENT).rec
    assert sent["flow"]["local_port"].tolist() == ports
    assert sent["nth"].tolist() == [1, 1]
