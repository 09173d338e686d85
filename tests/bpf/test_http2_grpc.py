"""Calls of gRPC, as its own library makes them."""

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.waiting import wait_until
from tests.truth.calls import tell
from tests.truth.grpc_calls import PAUSE_S, SLOW_S, Grpc, at_once
from tests.truth.streams import Streams, assert_unary, by_id

pytestmark = pytest.mark.root

CALLS = int(os.environ.get("CALLS", "1000"))
MS = 1_000_000


@pytest.mark.parametrize("threads", [1, 10, 50])
def test_each_unary_call_is_an_event_at_both_ends(streams: Streams, port: int, threads: int) -> None:
    streams.measure(port)
    with Grpc(port) as one:
        at_once(CALLS, threads, one.echo)
    found = streams.records(2 * CALLS)
    tell(f"gRPC {grpc.__version__}", f"{threads} at once, `protocol: HTTP2`", CALLS, found)
    assert_unary(found, CALLS)


def test_large_messages_are_one_call_each(streams: Streams, port: int) -> None:
    """300 KB each way, of many frames, several calls at a time."""
    streams.measure(port)
    message = os.urandom(300_000)
    with Grpc(port) as one:
        at_once(100, 10, lambda: one.echo(message))
    found = streams.records(200)
    assert_unary(found, 100)
    assert (found["request_bytes"] > 300_000).all()
    assert (found["response_bytes"] > 300_000).all()


def test_calls_that_were_given_up_have_failed_and_errors_that_were_answered_have_not(
    streams: Streams, port: int
) -> None:
    """What gRPC answers by its status is an answer; nobody reads it."""
    streams.measure(port)
    with Grpc(port) as one:
        for _ in range(20):
            one.fail()
            one.cancel()
    found = streams.records(80)
    for role in (Role.CLIENT, Role.SERVER):
        of_role = by_id(found, role).values()
        assert Counter(int(one["outcome"]) for one in of_role) == {Outcome.OK: 20, Outcome.STREAM_RESET: 20}
    assert Counter(found["excluded"].tolist()) == {Excluded.NONE: 80}
    failed = halves(found[found["outcome"] == Outcome.STREAM_RESET].copy())
    assert (failed.duration_ns < SLOW_S * 1e9).all(), "until it was given up, not until the handler was done"


def test_call_whose_deadline_was_over_lasted_until_then(streams: Streams, port: int) -> None:
    """Both ends know the deadline: the server may answer so before the client's reset comes; then it has answered."""
    streams.measure(port)
    began_ns = []
    with Grpc(port) as one:
        for _ in range(20):
            began_ns.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            one.late()
    found = streams.records(40)
    assert set(found["outcome"].tolist()) <= {Outcome.OK, Outcome.STREAM_RESET}
    for role in (Role.CLIENT, Role.SERVER):
        by_stream = sorted(by_id(found, role).items())
        ended_ns = halves(np.array([one for _, one in by_stream])).end_ns
        lasted_ns = ended_ns - began_ns  # since the call was made: a busy machine may send it later
        assert ((lasted_ns > 95 * MS) & (lasted_ns < SLOW_S * 1e9)).all()


def test_streaming_calls_are_pairs_and_no_events(streams: Streams, port: int) -> None:
    """A server that pauses, and ends that speak in turns; a client that streams to one answer makes an event."""
    streams.measure(port, pause_ns=10 * MS)
    with Grpc(port) as one:
        for _ in range(5):
            one.count()
            one.chat()
        made = one.made.total()
    found = streams.records(2 * made)
    for role in (Role.CLIENT, Role.SERVER):
        assert len(by_id(found, role)) == made
    assert Counter(found["excluded"].tolist()) == {Excluded.STREAMING: 2 * made}
    assert (found["send_start_ns"] > 0).all()
    assert streams.open() == 0
    pairs = LocalJoin().join(halves(found))
    assert (len(pairs), len(pairs.events)) == (made, 0)
    assert (0 < pairs.server.first_answer_ns).all()
    assert (pairs.server.first_answer_ns < pairs.client.first_answer_ns).all()
    early = pairs.client.first_answer_ns < pairs.client.duration_ns - 2 * PAUSE_S * 1e9
    assert early[np.argsort(pairs.client.rec["stream_id"])][::2].all(), "those that count"


def test_call_whose_client_streams_is_one_request(streams: Streams, port: int) -> None:
    streams.measure(port)
    with Grpc(port) as one:
        for _ in range(50):
            one.sum()
    assert_unary(streams.records(100), 50)


def test_calls_go_on_through_the_ends_of_connections_that_their_server_lets_grow_no_older(
    streams: Streams, port: int
) -> None:
    """GOAWAY: what is open is answered, what comes next takes a new connection. A call that came too late for the old
    one is sent again by the library: it is two streams, of which one was cut off."""
    streams.measure(port)
    with Grpc(port, max_connection_age_ms=100, max_connection_age_grace_ms=10_000) as one:
        until_s = time.monotonic() + 2
        while time.monotonic() < until_s:
            at_once(100, 10, one.echo)
        made = one.made["echo"]
    found = streams.records_of_ended()
    connections = len(np.unique(found["sock_cookie"])) // 2
    assert connections > 2
    answered = found[found["outcome"] == Outcome.OK]
    assert Counter(answered["conn_class"].tolist()) == {ExchangeClass.UNARY: 2 * made}
    assert len(found) - len(answered) <= connections


def test_calls_are_measured_from_soon_after_a_plan_came_into_their_midst(streams: Streams, port: int) -> None:
    """Every stream that begins after the first measured one, at either end."""
    with Grpc(port) as one, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(at_once, 8 * CALLS, 10, one.echo)
        wait_until(lambda: one.made["echo"] > CALLS, "calls are under way")
        streams.measure(port)
        calling.result()
        last = 2 * 8 * CALLS - 1
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        numbers = set(by_id(found, role))
        print(f"{role.name}: from stream {min(numbers)} to {max(numbers)}")
        assert numbers == set(range(min(numbers), last + 1, 2))
        assert min(numbers) < last - 2 * CALLS, "soon after"
    assert Counter(found["outcome"].tolist()) == {Outcome.OK: len(found)}
