"""Bytes that waited to be sent: each reason on real sockets between two namespaces; how long, by stamps of the test.

What a test holds back itself lies between its own stamps; nothing else is timed. RPCS=1000000 in the environment makes
the last tests as long as that.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from latencyprobe_agent.vocabulary.records import HeldBound, Role, UnsentReason
from tests.truth import workload
from tests.truth.linked import linked
from tests.truth.netns import Namespace
from tests.truth.session import Session
from tests.truth.sides import of_role
from tests.truth.workload import NO_PAUSE_NS
from tests.truth.writing import ANSWER, Turns, assert_held, assert_not_held, now_ns

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

LINKED = "10.96.0.2"
RPCS = int(os.environ.get("RPCS", "100000"))
WAIT_S = 0.03  # how long a test holds something back
CORK_NS = 190_000_000  # so long the kernel holds back what is corked, at the least: its timer of 200 ms lets it go
TCP_CORK, TCP_NODELAY, TCP_QUICKACK = socket.TCP_CORK, socket.TCP_NODELAY, socket.TCP_QUICKACK
SO_MAX_PACING_RATE = 47  # asm-generic/socket.h


Connect = Callable[..., Turns]


@pytest.fixture
def connect(session: Session, port: int, ends: tuple[Namespace, Namespace]) -> Connect:
    """Connect over the veth pair; both ends use reno, which does not pace."""
    for end in ends:
        end.sysctl("net.ipv4.tcp_congestion_control", "reno")
        end.sysctl("net.ipv4.tcp_early_retrans", 0)  # no loss probes: whatever is sent again makes it a bound
    return lambda room=0: Turns(session, port, ends, room=room)


@pytest.fixture
def far(session: Session, port: int) -> Iterator[Connect]:
    """The same over a link of 25 ms each way."""
    with linked(25, 0) as ends:
        for end in ends:
            end.sysctl("net.ipv4.tcp_congestion_control", "reno")
            end.sysctl("net.ipv4.tcp_early_retrans", 0)
        yield lambda: Turns(session, port, ends, LINKED)


def wait_for_delayed_acks(turns: Turns) -> None:
    """The first segments of a connection are acknowledged at once; so many later, the client waits for its answer."""
    for _ in range(20):
        turns.plain()


# -- Nagle


def test_a_second_small_write_waits_for_the_clients_delayed_ack(connect):
    turns = connect()
    wait_for_delayed_acks(turns)
    turns.ask()
    turns.client.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 0)
    turns.write(ANSWER)
    turns.write(ANSWER)
    arrived_ns = turns.read(2 * ANSWER)
    half = turns.half(2 * ANSWER)
    assert_held(half, UnsentReason.NAGLE, ANSWER, 0, arrived_ns - turns.before_ns)


def test_with_an_ack_at_once_it_waits_for_a_round_trip(far):
    turns = far()
    turns.plain()
    turns.ask()
    turns.client.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 1)
    turns.write(ANSWER)
    turns.write(ANSWER)
    arrived_ns = turns.read(2 * ANSWER)
    half = turns.half(2 * ANSWER)
    assert_held(half, UnsentReason.NAGLE, ANSWER, 0, arrived_ns - turns.before_ns)


def test_without_nagle_it_does_not_wait(far):
    turns = far()
    turns.set(TCP_NODELAY, 1)
    turns.plain()
    turns.ask()
    turns.write(ANSWER)
    turns.write(ANSWER)
    turns.read(2 * ANSWER)
    assert_not_held(turns.half(2 * ANSWER))


def test_a_request_of_two_writes_waits_too(connect):
    turns = connect()
    wait_for_delayed_acks(turns)
    turns.server.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 0)
    before_ns = now_ns()
    turns.client.sendall(bytes(ANSWER))
    turns.client.sendall(bytes(ANSWER))
    missing = 2 * ANSWER
    while missing:
        missing -= len(turns.server.recv(missing))
    arrived_ns = now_ns()
    turns.write(5)
    turns.read(5)
    turns.half(5)
    clients = of_role(turns.session.records(), Role.CLIENT)
    (half,) = clients[clients["request_bytes"] == 2 * ANSWER]
    assert_held(half, UnsentReason.NAGLE, ANSWER, 0, arrived_ns - before_ns)


# -- cork


def test_a_corked_answer_waits_until_it_is_let_go(connect):
    turns = connect()
    turns.plain()
    turns.ask()
    turns.set(TCP_CORK, 1)
    turns.write(ANSWER)
    turns.write(10)
    time.sleep(WAIT_S)
    from_ns = now_ns()
    turns.set(TCP_CORK, 0)
    to_ns = now_ns()
    turns.read(ANSWER + 10)
    half = turns.half(ANSWER + 10)
    least_ns = min(from_ns - turns.after_ns, CORK_NS)
    assert_held(half, UnsentReason.CORK, ANSWER + 10, least_ns, to_ns - turns.before_ns)


@pytest.mark.parametrize("nodelay", [0, 1])
def test_more_to_come_that_does_not_come_is_a_cork(connect, nodelay):
    turns = connect()
    turns.plain()
    turns.set(TCP_NODELAY, nodelay)
    turns.ask()
    turns.write(ANSWER, socket.MSG_MORE)
    time.sleep(WAIT_S)
    from_ns = now_ns()
    turns.set(TCP_NODELAY, 1)  # which sends what there is
    to_ns = now_ns()
    turns.read(ANSWER)
    half = turns.half(ANSWER)
    least_ns = min(from_ns - turns.after_ns, CORK_NS)
    assert_held(half, UnsentReason.CORK, ANSWER, least_ns, to_ns - turns.before_ns)


def test_more_that_comes_is_nothing(connect):
    turns = connect()
    turns.set(TCP_NODELAY, 1)
    turns.plain()
    turns.ask()
    turns.write(ANSWER, socket.MSG_MORE)
    turns.write(10)
    turns.read(ANSWER + 10)
    assert_not_held(turns.half(ANSWER + 10))


# -- windows and pacing


def test_an_answer_that_the_client_has_no_room_for_waits_for_its_window(connect, ends):
    turns = connect(room=8192)
    wait_for_delayed_acks(turns)
    turns.ask()
    turns.write(30_000)
    time.sleep(WAIT_S)
    from_ns = now_ns()
    arrived_ns = turns.read(30_000)
    half = turns.half(30_000)
    left = int(half["unsent_bytes"])
    assert 0 < left < 30_000
    assert_held(half, UnsentReason.WINDOW, left, from_ns - turns.after_ns, arrived_ns - turns.before_ns)


@pytest.mark.parametrize("algorithm", ["reno", "bbr"])
def test_a_first_answer_beyond_the_initial_window_waits_for_the_congestion_window(far, algorithm):
    turns = far()
    if algorithm in turns_allow():
        turns.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
    turns.ask()
    turns.write(30_000)
    arrived_ns = turns.read(30_000)
    half = turns.half(30_000)
    left = int(half["unsent_bytes"])
    assert 0 < left <= 30_000 - 10 * 1000
    assert_held(half, UnsentReason.CWND, left, 0, arrived_ns - turns.before_ns)


def turns_allow() -> list[str]:
    """The congestion control that this kernel has."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def test_a_paced_answer_waits_for_its_pace(connect):
    turns = connect()
    for _ in range(20):  # the first ten segments are not paced
        turns.plain()
    turns.server.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 200_000)
    turns.ask()
    turns.write(8_000)
    arrived_ns = turns.read(8_000)
    half = turns.half(8_000)
    left = int(half["unsent_bytes"])
    assert 0 < left < 8_000
    assert_held(half, UnsentReason.PACING, left, 0, arrived_ns - turns.before_ns)


# -- bounds


def test_what_has_not_left_when_the_connection_ends_was_held_at_least_so_long(connect):
    turns = connect(room=8192)
    wait_for_delayed_acks(turns)
    turns.ask()
    turns.write(30_000)
    from_ns = now_ns()
    time.sleep(WAIT_S)
    to_ns = now_ns()
    turns.server.close()
    turns.client.close()
    servers = of_role(turns.session.records_of_closed(2), Role.SERVER)
    (half,) = servers[servers["response_bytes"] == 30_000]
    assert UnsentReason(half["unsent_reason"]) is UnsentReason.WINDOW
    assert HeldBound(half["held_bound"]) is HeldBound.AT_LEAST
    assert to_ns - from_ns <= half["held_ns"] <= now_ns() - turns.before_ns


def test_without_selective_acknowledgements_it_is_known_only_that_it_had_left_by_the_end(connect, ends):
    ends[0].sysctl("net.ipv4.tcp_sack", 0)
    try:
        turns = connect()
    finally:
        ends[0].sysctl("net.ipv4.tcp_sack", 1)
    turns.plain()
    turns.ask()
    turns.set(TCP_CORK, 1)
    turns.write(ANSWER)
    time.sleep(WAIT_S)
    from_ns = now_ns()
    turns.set(TCP_CORK, 0)
    turns.read(ANSWER)
    half = turns.half(ANSWER)
    assert UnsentReason(half["unsent_reason"]) is UnsentReason.CORK
    assert HeldBound(half["held_bound"]) is HeldBound.AT_MOST
    assert from_ns - turns.after_ns <= half["held_ns"] <= now_ns() - turns.before_ns


# -- nothing


def test_an_earlier_write_that_waited_is_not_told_when_the_last_one_had_all_sent(connect):
    turns = connect()
    turns.plain()
    turns.ask()
    turns.set(TCP_CORK, 1)
    turns.write(ANSWER)
    turns.set(TCP_CORK, 0)
    turns.set(TCP_NODELAY, 1)
    turns.write(10)
    turns.read(ANSWER + 10)
    assert_not_held(turns.half(ANSWER + 10))


def test_of_ordinary_rpcs_none_is_told(session, port, tmp_path):
    """Messages that fit the windows of a new connection."""
    session.measure(port, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(
        tmp_path / "log", address=f"127.0.0.1:{port}", total=RPCS, seed=3, threads=16, max_size=8192
    )
    records = session.records(2 * len(truth), timeout_s=60)
    told = records[records["unsent_reason"] != UnsentReason.NONE]
    print(f"{len(records)} halves, {len(told)} told")
    assert len(told) == 0
