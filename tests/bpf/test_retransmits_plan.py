"""Retransmits as an agent has them: of the plan's sockets only, with counters, joined to the RPCs they hit."""

import socket

import numpy as np
import pytest

from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.signals.retransmits import EXPLAINS, KEY, columns, reasons
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.vocabulary.records import Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.netns import ONCE
from tests.truth.peers import disconnect, reset

pytestmark = [pytest.mark.root, pytest.mark.hideable]

MS = 1_000_000
DATA = "meta length > 500"


def turn(client: socket.socket, server: socket.socket, request: int = 100, response: int = 1000) -> None:
    for sender, receiver, size in ((client, server, request), (server, client, response)):
        sender.sendall(bytes(size))
        assert len(receiver.recv(size, socket.MSG_WAITALL)) == size


def test_a_lost_answer_explains_the_rpc_whose_bytes_it_held(session, lossy, record, port):
    session.measure(port, evidence=("retransmits",))
    recorder = record(RETRANSMITS)
    ((client, server),) = lossy.connect(port)
    for number in range(20):
        if number == 7:
            lossy.client.filter("input", f"tcp sport {port} {DATA} {ONCE} drop")
        turn(client, server)
    client.close()
    server.close()
    halves, _ = session.pairs(session.records(40))
    evidence = columns(recorder.records())
    join = EvidenceJoin(RecentHalves(), KEY, EXPLAINS.waits)
    join.recent.keep(halves)
    joined = join.join(evidence, int(halves.end_ns.max()) + MS)

    assert joined is not None
    assert columns(recorder.records()).joins.sum() == len(joined.half) == join.outcomes["joined"]
    rpc = np.unique(joined.half["join_key"])
    (hit,) = np.flatnonzero((halves.join_key == rpc) & (halves.rec["role"] == Role.SERVER))
    assert halves.start_ns[hit] == np.sort(halves.start_ns[halves.rec["role"] == Role.SERVER])[7]
    (answer,) = np.flatnonzero(joined.half["role"] == Role.SERVER)
    assert ["tlp"] == reasons(joined.evidence.rec[[answer]]).tolist()
    wait_ms = joined.wait_ns[answer] / MS
    slowest_ms = halves.duration_ns[halves.rec["role"] == Role.CLIENT].max() / MS
    print(f"waited {wait_ms:.1f} ms, the RPC took {slowest_ms:.1f} ms")
    assert 150 < wait_ms <= slowest_ms
    # the lost answer would have acknowledged the request: that may be sent again too, of the same RPC
    assert {Role.SERVER} <= set(joined.half["role"].tolist()) <= {Role.CLIENT, Role.SERVER}


@pytest.mark.usefixtures("needs_storage")
@pytest.mark.parametrize("end", [socket.socket.close, reset], ids=["closed", "reset"])
def test_what_a_connection_without_loss_sent_is_counted_at_its_end_without_a_record(session, lossy, record, port, end):
    """A reset takes the counters off the socket before it ends."""
    session.measure(port, evidence=("retransmits",))
    recorder = record(RETRANSMITS)
    ((client, server),) = lossy.connect(port)
    for _ in range(5):
        turn(client, server)
    end(client)
    server.close()
    wait_until(lambda: sent_by(recorder) == {Role.CLIENT: (500, 5), Role.SERVER: (5000, 5)}, "what both ends sent")
    assert not recorder.counted()["segs_retrans"]
    assert not len(recorder)


def test_a_socket_that_connects_again_counts_both_times(session, lossy, record, port):
    session.measure(port, evidence=("retransmits",))
    recorder = record(RETRANSMITS)
    ((client, server),) = lossy.connect(port)
    address = client.getpeername()
    turn(client, server)
    server.close()
    with lossy.server.inside(), socket.create_server(("", port)) as listener:
        disconnect(client)
        client.connect(address)
        with client, listener.accept()[0] as server:
            turn(client, server)
    wait_until(lambda: sent_by(recorder) == {Role.CLIENT: (200, 2), Role.SERVER: (2000, 2)}, "what both ends sent")


def test_a_connection_that_is_older_counts_from_when_it_is_found(session, lossy, record, port):
    session.measure(port, evidence=("retransmits",))
    ((client, server),) = lossy.connect(port)
    turn(client, server)
    recorder = record(RETRANSMITS)
    recorder.flush()
    turn(client, server)
    client.close()
    server.close()
    wait_until(lambda: sent_by(recorder) == {Role.CLIENT: (100, 1), Role.SERVER: (1000, 1)}, "what both ends sent")


def test_what_was_sent_while_nobody_asked_is_not_counted_once_somebody_does(session, lossy, record, port):
    session.measure(port, evidence=("retransmits",))
    recorder = record(RETRANSMITS)
    ((client, server),) = lossy.connect(port)
    session.measure(port, evidence=("handshakes",))
    for _ in range(10):
        turn(client, server)
    recorder.flush()
    session.measure(port, evidence=("retransmits",))
    turn(client, server)
    recorder.flush()
    turn(client, server)
    client.close()
    server.close()
    wait_until(lambda: sent_by(recorder) == {Role.CLIENT: (100, 1), Role.SERVER: (1000, 1)}, "what both ends sent")


def sent_by(recorder):
    """(Bytes, segments) that were sent, by role."""
    counts = {role: recorder.counted(role=role) for role in (Role.CLIENT, Role.SERVER)}
    return {role: (int(n["bytes_sent"]), int(n["segs_sent"])) for role, n in counts.items()}


def test_sockets_that_no_target_asks_for_leave_nothing(session, lossy, record, port):
    recorder = record(RETRANSMITS)
    for measured in ((), (port,), (free_port(),)):
        session.measure(*measured, evidence=("handshakes",) if port in measured else ("retransmits",))
        ((client, server),) = lossy.connect(port)
        lossy.client.filter("input", f"tcp sport {port} {DATA} {ONCE} drop")
        turn(client, server)
        client.close()
        server.close()
        lossy.client.unfilter()
    recorder.flush()
    assert not len(recorder)
