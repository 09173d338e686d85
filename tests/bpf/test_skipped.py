"""Messages stay exact when the kernel skips programs: it does so with one that would run inside itself.

Where tracing programs can be preempted, one that is keeps its processor from running it for any other thread, for as
long as a thread waits for its turn. Here an event is taken away altogether, while connections are open: no skipping
can be worse.
"""

import itertools
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.peers import Peers
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000
TURNS = [((7,), (8,)), ((3, 1, 40), (1,)), ((1,), (900, 1, 1, 7)), ((5, 5), (60_000, 6, 1)), ((20_000, 1), (2, 2))] * 4


@pytest.fixture
def by_turns() -> Iterator[Iterator[ThreadPoolExecutor]]:
    """Three threads; each call is made by the next one."""
    with ExitStack() as stack:
        yield itertools.cycle([stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3)])


def of_role(session, role: Role) -> np.ndarray:
    records = session.records()
    return np.sort(records[records["role"] == role], order="request_offset")


def send(sender: socket.socket, receiver: socket.socket, pieces: tuple[int, ...], threads) -> None:
    """A message, written in `pieces` and, when all of it is there, read by one call."""
    for piece in pieces:
        next(threads).submit(sender.sendall, bytes(piece)).result()
    size = sum(pieces)
    wait_until(lambda: len(receiver.recv(size, socket.MSG_PEEK)) == size, "all came")
    assert len(next(threads).submit(receiver.recv, size).result()) == size


def assert_messages_are_exact(session, turns: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    wait_until(lambda: len(session.records()) >= 2 * len(turns), f"{2 * len(turns)} records")
    request, response = (np.array([sum(pieces) for pieces in side]) for side in zip(*turns, strict=True))
    for role in (Role.CLIENT, Role.SERVER):
        mine = of_role(session, role)
        assert mine["request_bytes"].tolist() == request.tolist(), role
        assert mine["response_bytes"].tolist() == response.tolist(), role
        assert mine["request_offset"].tolist() == (np.cumsum(request) - request).tolist(), role
        assert mine["response_offset"].tolist() == (np.cumsum(response) - response).tolist(), role
        assert (mine["excluded"] == Excluded.NONE).all(), mine["excluded"]
        assert (mine["outcome"] == Outcome.OK).all(), mine["outcome"]
    assert len(session.pairs(session.records())[1]) == len(turns)


@pytest.mark.parametrize("threads", ["one", "three"])
@pytest.mark.parametrize(
    "events",
    [("send_start",), ("send_end",), ("ready",), ("read",), ("send_start", "send_end"), ("send_end", "read")],
    ids="+".join,
)
def test_messages_are_exact_without(session, by_turns, events, threads):
    """... and the calls of events that are there, and those of sending, whose end the next one tells."""
    if threads == "one":
        by_turns = itertools.repeat(next(by_turns))
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    for n, (request, response) in enumerate(TURNS):
        if n == 2:
            session.skip(*events)
        send(peers.client, peers.server, request, by_turns)
        send(peers.server, peers.client, response, by_turns)
    peers.close()
    assert_messages_are_exact(session, TURNS)
    for role, side in ((Role.CLIENT, 0), (Role.SERVER, 1)):
        mine = of_role(session, role)
        if not {"send_start", "send_end"} <= set(events):
            assert mine["send_calls"].tolist() == [len(turn[side]) for turn in TURNS]
        assert mine["recv_calls"].tolist() == [1] * 2 + [int("read" not in events)] * (len(TURNS) - 2)
        approximate = ExchangeFlags.SEND_APPROX | ExchangeFlags.READY_APPROX | ExchangeFlags.READ_APPROX
        seen = mine["flags"] & approximate == 0
        assert seen.tolist() == [True] * 2 + [False] * (len(TURNS) - 2)


@pytest.mark.parametrize("half", [False, True])
def test_a_close_that_no_event_tells_adds_no_byte(session, by_turns, half):
    """A FIN counts as one in the socket's own positions."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    send(peers.client, peers.server, (7,), by_turns)
    session.skip("state")
    send(peers.server, peers.client, (8,), by_turns)
    send(peers.client, peers.server, (9, 1), by_turns)
    if half:
        peers.client.shutdown(socket.SHUT_WR)
        assert peers.server.recv(1) == b""
    send(peers.server, peers.client, (20,), by_turns)
    peers.close()
    assert_messages_are_exact(session, [((7,), (8,)), ((9, 1), (20,))])


def test_connections_whose_end_no_event_tells_are_counted_and_no_others(session):
    """Their storage goes with them, and what was open on them too."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    unseen, seen, open_yet = ([Peers(PORT) for _ in range(n)] for n in (3, 2, 1))
    for peers in (*unseen, *seen, *open_yet):
        peers.turn()
    for peers in seen:
        peers.close()
    session.programs.flush()
    assert session.programs.lost()["unseen_end"] == 0
    session.skip("state", "destroy")
    for peers in unseen:
        peers.close()
    session.programs.flush()
    assert session.programs.lost()["unseen_end"] == 2 * len(unseen)
    open_yet[0].turn()
    open_yet[0].close()
    session.programs.flush()
    assert session.programs.lost()["unseen_end"] == 2 * len(unseen) + 2
    assert len(session.drained()) == 2 * len(seen) + 2, "of each turn that ended before, and of no other"


def test_a_connection_that_the_plan_lets_go_may_end_unseen(session):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.turn()
    session.measure(free_port(), pause_ns=NO_PAUSE_NS)
    session.skip("state", "destroy")
    peers.close()
    session.programs.flush()
    assert session.programs.lost()["unseen_end"] == 0
