"""Connections that begin before the measuring, outlive the plan, fall silent, or end badly."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.peers import Peers, reset
from tests.truth.sides import of_role

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000


@pytest.fixture
def peers() -> Iterator[Peers]:
    """A connection that is older than the measuring."""
    connected = Peers(PORT)
    yield connected
    connected.close()


CLIENT_IN_CGROUP = """
import os, socket, sys
open(sys.argv[1], "w").write(str(os.getpid()))
with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as client:
    client.sendall(b"request")
    client.recv(100)
"""


def of_connection(records: np.ndarray, client_port: int) -> np.ndarray:
    return records[(records["local_port"] == client_port) | (records["peer_port"] == client_port)]


def test_an_older_connection_is_adopted_and_its_first_exchange_is_partial(peers, session):
    peers.turn()
    session.measure(PORT)
    for _ in range(5):
        peers.turn()
    peers.close()
    records = session.records(10)
    for role in (Role.CLIENT, Role.SERVER):
        mine = of_role(records, role)
        assert mine["excluded"].tolist() == [Excluded.PARTIAL] + 4 * [Excluded.NONE]
        assert mine["request_offset"].tolist() == [7, 14, 21, 28, 35], "offsets count from the connection's first byte"
    _, pairs = session.pairs(records)
    assert len(pairs) == 4


@pytest.mark.usefixtures("needs_storage")
def test_a_quiet_connection_is_flushed_once(peers, session):
    session.measure(PORT, idle_timeout_ns=200 * MS)
    for _ in range(3):
        peers.turn()
    session.records(4)  # the third exchange of each side is open still
    session.programs.flush()

    def flushed() -> bool:
        session.programs.flush()
        return len(session.records()) == 6

    wait_until(flushed, "both open exchanges are flushed when they have been quiet")
    records = session.records()
    last = [of_role(records, role)[-1] for role in (Role.CLIENT, Role.SERVER)]
    assert all(record["flags"] & ExchangeFlags.MAYBE_CUT for record in last)
    peers.turn()
    peers.close()
    assert len(session.records(8)) == 8, "the flushed exchange does not come again"
    assert (of_role(session.records(), Role.CLIENT)["excluded"][1:] == Excluded.NONE).all()


def test_an_unanswered_request_is_not_flushed(session):
    session.measure(PORT, idle_timeout_ns=1)
    peers = Peers(PORT)
    peers.client.sendall(b"request")
    peers.server.recv(100)
    session.programs.flush()
    peers.server.sendall(b"response")
    peers.client.recv(100)
    peers.close()
    records = session.records(2)
    assert len(records) == 2
    assert not (records["flags"] & ExchangeFlags.MAYBE_CUT).any()


def test_a_target_that_goes_leaves_no_event_that_it_did_not_see_to_the_end(session):
    session.measure(PORT)
    peers = Peers(PORT)
    peers.turn()
    peers.turn()
    session.measure()
    peers.turn()
    peers.close()
    session.measure(PORT)
    again = Peers(PORT)
    again.turn()
    again.close()
    wait_until(lambda: (session.records()["excluded"] == Excluded.NONE).sum() >= 4, "the first and the last turn")
    records = session.records()
    events = records[records["excluded"] == Excluded.NONE]
    assert len(events) == 4
    assert set(records["excluded"]) <= {Excluded.NONE, Excluded.PLAN}
    assert (events["request_bytes"] == 7).all()
    assert (events["response_bytes"] == 8).all()


def test_reset_inside_an_exchange_is_an_error_on_both_sides(session):
    session.measure(PORT)
    peers = Peers(PORT)
    peers.turn()
    peers.client.sendall(b"request")
    peers.server.recv(100)
    reset(peers.server)
    with pytest.raises(ConnectionResetError):
        peers.client.recv(100)
    peers.client.close()
    records = session.records(4)
    client, server = (of_role(records, role) for role in (Role.CLIENT, Role.SERVER))
    assert client["outcome"].tolist() == [Outcome.OK, Outcome.RESET]
    assert server["outcome"].tolist() == [Outcome.OK, Outcome.UNANSWERED]
    assert (records["excluded"] == Excluded.NONE).all()


def test_bytes_that_ask_for_no_answer_are_teardown(session):
    """The client's FIN follows its last bytes within 100 ms; tried again when this machine was slower than that."""
    session.measure(PORT)
    for _ in range(50):
        peers = Peers(PORT)
        peers.turn()
        began_ns = time.monotonic_ns()
        peers.client.sendall(b"quit")
        peers.client.close()
        assert peers.server.recv(100) == b"quit"
        assert peers.server.recv(100) == b""
        in_time = time.monotonic_ns() - began_ns < 100 * MS
        port = peers.server.getpeername()[1]
        peers.close()
        if in_time:
            break
    wait_until(lambda: len(of_connection(session.records(), port)) == 4, "both turns on both sides")
    for role in (Role.CLIENT, Role.SERVER):
        mine = of_role(of_connection(session.records(), port), role)
        assert mine["excluded"].tolist() == [Excluded.NONE, Excluded.TEARDOWN]


def test_of_a_cgroups_sockets_and_no_others_exchanges_are_measured(session):
    """The client belongs to a cgroup of its own, which the plan names; the server, this process, does not."""
    root = find_root()
    folder = root / "latencyprobe-test"
    folder.mkdir()
    try:
        cgroup_id = folder.stat().st_ino
        session.measure(PORT, cgroup_id=cgroup_id)
        with socket.create_server(("127.0.0.1", PORT)) as listener:
            client = subprocess.Popen([sys.executable, "-c", CLIENT_IN_CGROUP, folder / "cgroup.procs", str(PORT)])
            end, _ = listener.accept()
            with end:
                assert end.recv(100) == b"request"
                end.sendall(b"response")
                assert end.recv(100) == b""
        assert client.wait() == 0
        session.measure(PORT)
        peers = Peers(PORT)
        peers.turn()
        peers.close()
        records = np.sort(session.records(3), order="send_end_ns")
    finally:
        folder.rmdir()
    assert len(records) == 3
    assert (records["role"][0], records["cgroup_id"][0]) == (Role.CLIENT, cgroup_id)
    mine = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    assert records["cgroup_id"][1:].tolist() == 2 * [mine.stat().st_ino]


def test_a_connection_whose_cgroup_leaves_the_plan_and_comes_back_begins_anew(session):
    """What it did meanwhile passed unseen: nothing of it may be taken for a part of a turn."""
    mine = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    session.measure(PORT, cgroup_id=mine.stat().st_ino)
    peers = Peers(PORT)
    for _ in range(3):
        peers.turn()
    session.measure(PORT, cgroup_id=2**31 + 5)
    peers.turn(bytes(50_000), bytes(70_000))
    session.measure(PORT, cgroup_id=mine.stat().st_ino)
    for _ in range(3):
        peers.turn(b"later", b"answer")
    peers.close()
    records = session.records_of_closed(2)
    counted = records[records["excluded"] == Excluded.NONE]
    assert len(counted) == 2 * (2 + 2)  # open when the plan dropped it, and the first after it came back: not whole
    assert set(counted["request_bytes"][-4:].tolist()) == {len(b"later")}
    assert counted["request_bytes"].max() < 50_000


def test_another_port_is_not_measured(session):
    session.measure(free_port())
    peers = Peers(PORT)
    peers.turn()
    peers.close()
    session.measure(PORT)
    seen = Peers(PORT)
    seen.turn()
    seen.close()
    assert len(session.records(2)) == 2
