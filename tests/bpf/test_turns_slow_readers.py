"""A message that stops because its reader does is one message: the pause is the reader's, whoever looks at it."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.support.ports import free_port
from tests.truth.peers import Peers

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000
PAUSE_NS = 500 * MS
BURST = 1 << 20  # bytes that the reader takes at a time; several times what the sockets hold
SIZE = 4 * BURST


@pytest.fixture
def peers(session) -> Iterator[Peers]:
    """A connection that has taken two turns, with small buffers for what arrives."""
    session.measure(PORT, pause_ns=PAUSE_NS)
    connected = Peers(PORT)
    for end in (connected.client, connected.server):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    connected.turn()
    connected.turn()
    yield connected
    connected.close()


def send_to_a_slow_reader(sender: socket.socket, reader: socket.socket) -> None:
    """One message, written at once; its reader stops for longer than a pause before each burst."""
    sending = threading.Thread(target=sender.sendall, args=(bytes(SIZE),))
    sending.start()
    for _ in range(SIZE // BURST):
        time.sleep(1.5 * PAUSE_NS / 1e9)
        assert len(reader.recv(BURST, socket.MSG_WAITALL)) == BURST
    sending.join()


def test_a_response_that_waits_for_its_reader_is_one(peers, session):
    peers.send(peers.client, b"request")
    send_to_a_slow_reader(peers.server, peers.client)
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    for role in (Role.CLIENT, Role.SERVER):
        mine = records[records["role"] == role]
        assert mine["response_bytes"].tolist() == [8, 8, SIZE, 8], role.name
        assert (mine["excluded"] == Excluded.NONE).all(), role.name


def test_a_request_that_waits_for_its_reader_is_one(peers, session):
    send_to_a_slow_reader(peers.client, peers.server)
    peers.send(peers.server, b"response")
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    for role in (Role.CLIENT, Role.SERVER):
        mine = records[records["role"] == role]
        assert mine["request_bytes"].tolist() == [7, 7, SIZE, 7], role.name
        assert (mine["excluded"] == Excluded.NONE).all(), role.name
