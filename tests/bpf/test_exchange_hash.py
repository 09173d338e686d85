"""Connections in a hash by the socket's address, for kernels without socket storage; here on whatever kernel runs.

That they equal the log under load: test_exchange.py.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.peers import Peers
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
OBJECTS = Path(__file__).parents[2] / "build" / "bpf"


@pytest.fixture
def make_hashed(make_session):
    """Open a session that keeps connections in a hash; a kernel without socket storage takes that object by itself."""
    with Hooks(KERNEL_BTF) as hooks:
        name = "exchange_hash" if hooks.socket_storage else "exchange"
    return lambda **entries: make_session(path=OBJECTS / f"{name}.bpf.o", entries=entries)


def of_connection(session, client_port: int, since: int) -> np.ndarray:
    """Those after the first `since` records: a port may be that of an earlier connection."""
    records = session.records()[since:]
    return records[(records["local_port"] == client_port) | (records["peer_port"] == client_port)]


def test_what_an_earlier_socket_left_at_an_address_is_not_inherited(make_hashed, own_cgroup):
    """Each entry is put back after its socket's end, as if that had been missed, with an exchange still open.

    For one turn only, or its address is a socket of somebody else's by then.
    """
    session = make_hashed()
    session.measure(PORT, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    connections, left = session.programs.map("connections"), {}
    addresses, cookies, turns, known = set(), set(), 100, 0
    for _ in range(turns):
        peers = Peers(PORT)
        client_port = peers.client.getsockname()[1]
        peers.turn()
        peers.client.sendall(b"request")
        ours = {key: value for key, value in session.connections_in_hash().items() if left.get(key) != value}
        peers.close()
        wait_until(lambda now=ours: not now.keys() & session.connections_in_hash().keys(), "both sockets' end")
        ended = partial(of_connection, session, client_port, known)
        wait_until(lambda ended=ended: len(ended()) == 4, "both turns of both sides")
        records = ended()
        fresh = set(records["sock_cookie"].tolist())
        assert (2, set()) == (len(fresh), fresh & cookies)
        assert 2 == (records["flags"][records["request_offset"] == 0] & ExchangeFlags.FRESH != 0).sum()
        assert (records["request_bytes"] == 7).all()
        cookies |= fresh
        known = len(session.records())
        for key in left.keys() & session.connections_in_hash().keys():
            connections.delete(key)
        left = ours
        for key, value in left.items():
            connections.update(key, value)
        addresses |= left.keys()
    print(f"{2 * turns} sockets at {len(addresses)} addresses")
    assert len(addresses) < 2 * turns, "addresses were used again"


def test_connections_beyond_the_room_are_lost_and_counted_until_there_is_room(make_hashed, own_cgroup):
    session = make_hashed(connections=4)
    session.measure(PORT, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
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
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.turn()
    session.measure()
    peers.turn()
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers.turn()
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    assert len(set(records["sock_cookie"].tolist())) == 2
