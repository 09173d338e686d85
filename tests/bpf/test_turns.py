"""Whose turn it is: docs/design/measurement.md, "State machine", row by row, on one connection that does what it says.

The ends of connections: test_turn_ends.py; the same rules by random scripts: test_turn_scripts.py; by real software:
test_turns_*.py.
"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, SpanPolicy, Target, TargetPod
from latencyprobe.plan import Role as Side
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Role
from tests.bpf.told_turns import PAUSE_NS, assert_turns, fall_silent, two_turns, words
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.calls import ROLES
from tests.truth.peers import Peers
from tests.truth.sides import of_role

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000


def lull() -> None:
    """Let no byte move for a while within the pause, as between two messages of a dense stream."""
    time.sleep(PAUSE_NS / 4e9)


@pytest.fixture
def peers(session) -> Iterator[Peers]:
    with two_turns(session, PORT) as connected:
        yield connected


def test_what_a_server_sends_after_silence_and_the_reply_to_it_are_no_event(peers, session):
    fall_silent()
    peers.send(peers.server, b"news")
    peers.send(peers.client, b"received")
    fall_silent()
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    # a turn may be the first part of a response that goes on: what has paused is excluded with what follows
    for role in ROLES:
        assert [words(record) for record in of_role(records, role)] == ["OK", "STREAMING", "PUSH", "OK"]


def test_the_first_bytes_of_a_response_that_pauses_are_told_and_the_exchange_is_streaming(peers, session):
    peers.send(peers.client, b"request")
    peers.send(peers.server, b"headers")
    fall_silent()
    peers.send(peers.server, b"body")
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "STREAMING", "PUSH")
    for role in ROLES:
        streaming = of_role(records, role)[2]
        assert streaming["response_bytes"] == len(b"headers")
        assert streaming["conn_class"] == ExchangeClass.STREAMING


def test_a_response_that_was_held_up_costs_a_connection_of_many_turns_32_more(peers, session):
    """A stalled process, a lost segment; the connection is never silent afterwards."""
    for _ in range(130):
        peers.turn()
    peers.send(peers.client, b"request")
    peers.send(peers.server, b"headers")
    fall_silent()
    peers.send(peers.server, b"body")
    for _ in range(40):
        peers.turn()
    peers.close()
    assert_turns(session.records_of_closed(2), *130 * ["OK"], "STREAMING", *32 * ["PUSH"], *9 * ["OK"])


def test_a_response_that_was_held_up_until_the_flush_costs_it_no_more(session):
    """A process that is frozen for seconds in the middle of its answer."""
    session.measure(PORT, pause_ns=PAUSE_NS, idle_timeout_ns=PAUSE_NS)
    peers = Peers(PORT)
    for _ in range(132):
        peers.turn()
    peers.send(peers.client, b"request")
    peers.send(peers.server, b"headers")
    fall_silent()
    session.programs.flush()
    peers.send(peers.server, b"body")
    for _ in range(40):
        peers.turn()
    peers.close()
    assert_turns(session.records_of_closed(2), *130 * ["OK"], "OK", *32 * ["PUSH"], *9 * ["OK"])


def test_a_message_that_nobody_answers_before_the_client_goes_on_is_one_way(peers, session):
    """MySQL's COM_STMT_CLOSE, then the next query."""
    peers.send(peers.client, b"close the statement")
    fall_silent()
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "ONEWAY", "OK")
    for role in ROLES:
        query = of_role(records, role)[3]
        assert query["flags"] & ExchangeFlags.REQUEST_RESUMED
        assert query["request_bytes"] == len(b"request")


def test_a_server_that_has_not_read_the_first_part_of_a_request_takes_it_as_one(peers, session):
    peers.client.sendall(b"first ")
    fall_silent()
    peers.client.sendall(b"second")
    assert peers.server.recv(12, socket.MSG_WAITALL) == b"first second"
    peers.send(peers.server, b"response")
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "OK", roles=(Role.SERVER,))
    assert_turns(records, "ONEWAY", "OK", roles=(Role.CLIENT,))


def test_messages_that_nobody_answers_are_no_request_of_seconds(session):
    """Publishing without confirmation, within the pause, until a heartbeat is answered; then an upload in pieces."""
    session.measure(PORT, pause_ns=PAUSE_NS)
    peers = Peers(PORT)
    peers.turn()
    peers.turn()
    begun_ns = time.monotonic_ns()
    while time.monotonic_ns() - begun_ns < 9 * PAUSE_NS:
        peers.send(peers.client, b"a message")
        lull()
    peers.turn()
    for _ in range(10):
        peers.send(peers.client, b"a piece")
        lull()
    peers.turn()
    peers.close()
    assert_turns(session.records_of_closed(2), "OVERLAP", "OK")


def test_a_connection_that_is_never_answered_is_one_way(session):
    """Log lines over TCP: the last one too, which is on its way when the client leaves."""
    session.measure(PORT, pause_ns=PAUSE_NS)
    peers = Peers(PORT)
    for _ in range(3):
        peers.send(peers.client, b"a line")
        fall_silent()
    peers.close()
    records = session.records_of_closed(2)
    for role in ROLES:
        assert [words(record) for record in of_role(records, role)] == 3 * ["ONEWAY"]


def test_a_server_that_keeps_the_initiative_makes_the_connection_one_of_pushes(peers, session):
    for _ in range(3):
        fall_silent()
        peers.send(peers.server, b"news")
    fall_silent()
    peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    for role in ROLES:
        assert [words(record) for record in of_role(records, role)] == [
            "OK",
            "STREAMING",
            "PUSH",
            "PUSH",
            "PUSH",
            "PUSH",
        ]
        assert of_role(records, role)[-1]["conn_class"] == ExchangeClass.PUSH


def test_a_request_that_goes_on_after_its_answer_has_begun_is_one_exchange(peers, session):
    """nginx refuses an upload: the client has not looked at the answer yet."""
    peers.send(peers.client, b"upload ")
    peers.server.sendall(b"too large")
    wait_until(lambda: peers.client.recv(9, socket.MSG_PEEK) == b"too large", "the answer")
    peers.server.shutdown(socket.SHUT_WR)
    for _ in range(3):
        peers.client.sendall(b"and more")
        fall_silent()
    assert peers.client.recv(100) == b"too large"
    assert peers.server.recv(24, socket.MSG_WAITALL) == 3 * b"and more"
    peers.close()
    assert_turns(session.records(6), "OVERLAP")


def test_the_client_end_tells_the_server_end_of_its_host_that_it_had_not_looked_at_the_answer(peers, session):
    """The kernel has acknowledged the early answer: for the server alone, what comes then could be a request."""
    peers.send(peers.client, b"upload ")
    peers.server.sendall(b"too large")
    wait_until(lambda: peers.client.recv(9, socket.MSG_PEEK) == b"too large", "the answer")
    peers.send(peers.client, b"the rest")
    assert peers.client.recv(100) == b"too large"
    for _ in range(2):
        peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    assert_turns(records, "OVERLAP", "OVERLAP", "OK")


def test_a_client_whose_own_port_is_the_targets_is_no_server(session):
    """Who connected is told by the connection itself, also by one that is older than the measuring."""
    other = free_port()
    session.measure()
    with socket.create_server(("127.0.0.1", other)) as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", PORT))
        client.connect(("127.0.0.1", other))
        server, _ = listener.accept()
        with server:
            session.measure(PORT)
            for _ in range(5):
                client.sendall(b"request")
                assert server.recv(7) == b"request"
                server.sendall(b"response")
                assert client.recv(8) == b"response"
    witness = Peers(PORT)
    witness.turn()
    witness.close()
    assert len(set(session.records(2)["sock_cookie"])) == 2, "the two ends of the witness"


def test_an_older_connection_of_a_target_without_ports_is_measured_at_the_end_that_accepted_it(session):
    port = free_port()
    older = Peers(port)
    older.turn()
    cgroup = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    target = Target(
        *("default/truth/server", "default", "truth", "", "server", Side.SERVER),
        thresholds_ns=(),
        setup_turns=0,
        spans=SpanPolicy(slower_than_ns=100 * MS, ratio=0, max_per_second=0),
        pods=(TargetPod("pod", ports=()),),
    )
    plan = NodePlan(node="", generation=1, digest="", targets=(target,), objectives=())
    rules = compile_rules(plan, {"pod": [cgroup.stat().st_ino]}, session.rules)
    session.programs.apply(rules, idle_timeout_ns=2000 * MS, own_tgid=0, owner_by_process=False)
    for _ in range(4):
        older.turn()
    older.close()

    def mine() -> NDArray[np.void]:
        records = session.records()
        return records[(records["local_port"] == port) | (records["peer_port"] == port)]

    wait_until(lambda: len(mine()) == 4, "its four turns")
    assert set(mine()["role"]) == {Role.SERVER}
    assert [words(record) for record in mine()] == ["PARTIAL", "OK", "OK", "OK"]
