"""Sockets that the plan is asked about and that are no target's cost a mark of 8 bytes, until a plan wants them."""

import socket
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.lossy import SERVER_ADDRESS, Network, counters
from tests.truth.netns import ONCE
from tests.truth.peers import Peers
from tests.truth.session import Session
from tests.truth.sides import of_role
from tests.truth.workload import NO_PAUSE_NS

pytestmark = [pytest.mark.root, pytest.mark.hideable]

PORT, ELSEWHERE = free_port(), free_port()
OBJECTS = Path(__file__).parents[2] / "build" / "bpf"


@pytest.fixture(params=["in socket storage", "in a hash"])
def either(request, make_session):
    """A session that keeps what it knows of sockets so; a kernel without storage takes the hash by itself."""
    in_hash = request.param == "in a hash"
    if not in_hash:
        request.getfixturevalue("needs_storage")
    with Hooks(KERNEL_BTF) as hooks:
        name = "exchange_hash" if in_hash and hooks.socket_storage else "exchange"
    return make_session(path=OBJECTS / f"{name}.bpf.o")


def held(session: Session, name: str, *sockets: socket.socket) -> int:
    """How many of these sockets have an entry in a map; by address nobody else has one."""
    of = session.programs.map(name)
    if not session.kernel_cookies:
        return len(set(of.keys()))
    value = np.zeros(of.value_size, np.uint8)
    return sum(of.lookup(np.int32(one.fileno()).tobytes(), value.data) for one in sockets)


def test_a_socket_of_no_target_costs_eight_bytes_and_no_state_of_a_connection(either, own_cgroup):
    either.measure(ELSEWHERE, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    peers = Peers(PORT)
    ends = (peers.client, peers.server)
    for _ in range(3):
        peers.turn()
    assert (0, 2) == (held(either, "connections", *ends), held(either, "unmeasured", *ends))
    assert 8 == either.programs.map("unmeasured").value_size < either.programs.map("connections").value_size // 100
    peers.close()
    wait_until(lambda: not held(either, "unmeasured"), "it goes with its socket")
    assert not len(either.programs.counts()[0])


def test_an_edit_that_targets_such_a_socket_measures_it_as_any_older_one(either, own_cgroup):
    either.measure(ELSEWHERE, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    peers = Peers(PORT)
    peers.turn()
    either.measure(PORT, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    for _ in range(3):
        peers.turn()
    assert 2 == held(either, "connections", peers.client, peers.server)
    peers.close()
    records = either.records_of_closed(2)
    for role in (Role.CLIENT, Role.SERVER):
        assert [Excluded.PARTIAL, Excluded.NONE, Excluded.NONE] == of_role(records, role)["excluded"].tolist()
        assert [7, 14, 21] == of_role(records, role)["request_offset"].tolist()
    assert len(either.pairs(records)[1]) == 2


def test_an_edit_that_concerns_others_leaves_its_mark_in_force(either, own_cgroup):
    either.measure(ELSEWHERE, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    peers = Peers(PORT)
    peers.turn()
    either.measure(ELSEWHERE, free_port(), pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    peers.turn()
    assert 0 == held(either, "connections", peers.client, peers.server)
    peers.close()


def connected(lossy: Network, port: int, to: int) -> tuple[socket.socket, socket.socket]:
    """A connection from a port of the client's namespace to one of the server's."""
    with lossy.server.inside(), socket.create_server(("", to)) as listener:
        with lossy.client.inside():
            client = socket.socket()
        client.bind(("", port))
        client.connect((SERVER_ADDRESS, to))
        return client, listener.accept()[0]


@pytest.mark.usefixtures("needs_storage")
def test_who_had_connected_is_known_when_a_later_plan_asks(session, lossy, port):
    """Of both ends' ports a target's, and a segment could not be sent: the socket's counters do not tell any more."""
    session.measure(free_port(), pause_ns=NO_PAUSE_NS)
    client, server = connected(lossy, port, to=port)
    lossy.client.filter("output", f"tcp dport {port} meta length > 500 {ONCE} drop")
    with client, server:
        for number in range(4):
            if number == 2:
                session.measure(port, pause_ns=NO_PAUSE_NS)
            client.sendall(bytes(1000))
            server.recv(1000, socket.MSG_WAITALL)
            server.sendall(b"response")
            client.recv(8, socket.MSG_WAITALL)
    records = session.records_of_closed(2)
    assert (2, 2) == (len(of_role(records, Role.CLIENT)), len(of_role(records, Role.SERVER)))


@pytest.mark.usefixtures("needs_storage")
def test_a_client_whose_own_port_is_the_targets_leaves_no_evidence_either(session, lossy, record, port):
    """Without the mark nobody would know that it connected, and the rule of its port would be taken for its own."""
    session.measure(port, pause_ns=NO_PAUSE_NS, evidence=("retransmits",))
    recorder = record(RETRANSMITS)
    client, server = connected(lossy, port, to=free_port())
    lossy.server.filter("input", f"tcp sport {port} meta length > 500 {ONCE} drop")
    before = counters(lossy.client)["RetransSegs"]
    with client, server:
        client.sendall(bytes(1000))
        server.recv(1000, socket.MSG_WAITALL)
    assert counters(lossy.client)["RetransSegs"] > before, "it was sent again"
    recorder.flush()
    assert not len(recorder)
    assert not recorder.counted()["bytes_sent"]
