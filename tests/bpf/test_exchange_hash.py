"""Connections in a hash by the socket's address, for kernels without socket storage; here on whatever kernel runs.

That they equal the log under load: test_exchange.py.
"""

from pathlib import Path

import pytest

from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.kernel.libbpf import Map
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded
from tests.support.ports import free_port
from tests.truth.peers import Peers

pytestmark = pytest.mark.root

PORT = free_port()
OBJECTS = Path(__file__).parents[2] / "build" / "bpf"


@pytest.fixture
def make_hashed(make_session):
    """Open a session that keeps connections in a hash; a kernel without socket storage takes that object by itself."""
    with Hooks(KERNEL_BTF) as hooks:
        name = "exchange_hash" if hooks.socket_storage else "exchange"
    return lambda **entries: make_session(path=OBJECTS / f"{name}.bpf.o", entries=entries)


def entries_of(connections: Map) -> dict[bytes, bytes]:
    """All (address, connection) of sockets that are there."""
    found, value = {}, bytearray(connections.value_size)
    for key in connections.keys():  # noqa: SIM118 - not a dict
        connections.lookup(key, memoryview(value))
        found[key] = bytes(value)
    return found


def test_what_an_earlier_socket_left_at_an_address_is_not_inherited(make_hashed):
    """Each entry is put back after its socket's end, as if that had been missed, with an exchange still open."""
    session = make_hashed()
    session.measure(PORT)
    connections, left, turns = session.programs.map("connections"), {}, 100
    for turn in range(turns):
        peers = Peers(PORT)
        peers.turn()
        peers.client.sendall(b"request")
        there = entries_of(connections)
        peers.close()
        session.records(4 * (turn + 1))
        left |= there
        for key, value in left.items():
            connections.update(key, value)
    records = session.records()
    print(f"{2 * turns} sockets at {len(left)} addresses")
    assert len(left) < turns, "addresses were used again"
    assert len(set(records["sock_cookie"].tolist())) == 2 * turns
    first = records[records["request_offset"] == 0]
    assert len(first) == 2 * turns
    assert (first["flags"] & ExchangeFlags.FRESH != 0).all()
    assert (records["request_bytes"] == 7).all()


def test_connections_beyond_the_room_are_lost_and_counted_until_there_is_room(make_hashed):
    session = make_hashed(connections=4)
    session.measure(PORT)
    measured = [Peers(PORT), Peers(PORT)]
    beyond = Peers(PORT)
    for peers in (*measured, beyond):
        peers.turn()
    assert session.programs.lost()["storage"] > 0
    for peers in measured:
        peers.close()
    assert len(session.records(4)) == 4
    for _ in range(2):
        beyond.turn()
    beyond.close()
    records = session.records(8)[4:]
    assert sorted(records["excluded"].tolist()) == 2 * [Excluded.NONE] + 2 * [Excluded.PARTIAL]


def test_a_socket_keeps_its_cookie_when_the_plan_changes(make_hashed):
    session = make_hashed()
    session.measure(PORT)
    peers = Peers(PORT)
    peers.turn()
    session.measure()
    peers.turn()
    session.measure(PORT)
    peers.turn()
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    assert len(set(records["sock_cookie"].tolist())) == 2
