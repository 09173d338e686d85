"""Connections of HTTP/2: older than we are, lossy, killed with streams open; and connections that are none."""

import os
import socket
import struct
import time
from random import Random

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.waiting import wait_until
from tests.truth.http2 import ASK, END_HEADERS, END_STREAM, PREFACE, Connection, Type, frame
from tests.truth.http2_script import SEED, Script, ask_only
from tests.truth.lossy import Network
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root

STREAMS = int(os.environ.get("STREAMS", "10000"))


def test_every_call_is_told_though_packets_are_lost(streams: Streams, port: int, lossy: Network) -> None:
    streams.measure(port)
    ((client_end, server_end),) = lossy.connect(port)
    connection = Connection(client_end, server_end)
    for end in (lossy.client, lossy.server):
        end.filter("input", "meta l4proto tcp numgen random mod 12 == 0 drop")
    connection.greet()
    script = Script(connection, SEED, cut=20_000)
    script.play(200)
    lossy.mend()
    connection.close()
    found = streams.records(400)
    client, server = by_id(found, Role.CLIENT), by_id(found, Role.SERVER)
    assert client.keys() == server.keys() == {call.stream for call in script.calls}
    for call in script.calls:
        if call.request.complete and call.answer.complete:
            sizes = (call.request.bytes, call.answer.bytes)
            for one in (client[call.stream], server[call.stream]):
                assert (one["request_bytes"], one["response_bytes"], one["outcome"]) == (*sizes, Outcome.OK)


@pytest.mark.parametrize("count", [1, 100, 1000])
@pytest.mark.parametrize(
    ("who", "how"), [("client", "reset"), ("client", "close"), ("server", "reset"), ("server", "close")]
)
def test_streams_that_are_open_fail_with_their_connection(
    streams: Streams, port: int, who: str, how: str, count: int
) -> None:
    streams.measure(port)
    connection = Connection.open(port)
    connection.greet()
    ask_only(connection, count)
    assert streams.open() == 2 * count
    ending = connection.client if who == "client" else connection.server
    if how == "reset":
        ending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ending.close()
    connection.close()
    found = streams.records(2 * count)
    assert len(found) == 2 * count
    expected = {Outcome.ABORTED, Outcome.RESET} if who == "client" else {Outcome.UNANSWERED, Outcome.RESET}
    assert set(found["outcome"].tolist()) <= expected
    assert set(found["excluded"].tolist()) == {Excluded.NONE}
    assert streams.open() == 0


def test_calls_that_a_server_reads_after_their_client_has_gone_ended_as_and_when_it_went(
    streams: Streams, port: int
) -> None:
    """A server that stands still; its client gives up by a RST, which keeps no reader from what had come before."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    connection.settle(dice)
    connection.asks.put(frame(Type.HEADERS, ASK, 1, bytes(10)))
    connection.asks.send(1 << 20, dice)
    connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.client.close()
    gone_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    time.sleep(0.1)
    assert connection.server.recv(100)
    time.sleep(0.1)
    connection.server.close()
    one = by_id(streams.records_of_ended(), Role.SERVER)[1]
    assert (one["outcome"], one["excluded"]) == (Outcome.RESET, Excluded.NONE)
    assert one["send_end_ns"] < gone_ns


def test_nothing_is_left_of_streams_that_ended(streams: Streams, port: int) -> None:
    streams.measure(port, records_per_second=1000)
    connection = Connection.open(port)
    connection.greet()
    dice = Random(SEED)
    for stream in range(1, 2 * STREAMS, 2):
        connection.asks.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        if stream % 199 == 0:
            connection.settle(dice)
    connection.settle(dice)
    wait_until(lambda: streams.open() == 0, "no stream is open", seen=streams.open)
    keys, counts = streams.session.programs.counts()
    by_role = {int(key["role"]): one for key, one in zip(keys, counts, strict=True)}
    for role in (Role.CLIENT, Role.SERVER):
        assert (
            by_role[role]["classes"][ExchangeClass.UNARY] + by_role[role]["classes"][ExchangeClass.STREAMING] == STREAMS
        )
    connection.close()


HTTP1 = b"GET / HTTP/1.1\r\nHost: cart\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        HTTP1,
        (b"PING\r\n", b"+PONG\r\n"),
        (b"\x16\x03\x01\x02\x00" + bytes(512), b"\x16\x03\x03\x00\x7a" + bytes(122)),
        (bytes(40), bytes(40)),
        (PREFACE[:8], b"short"),
    ],
    ids=["http1", "redis", "tls", "zeros", "eight-bytes"],
)
def test_what_is_no_http2_is_measured_by_turns_from_its_first_byte(
    streams: Streams, port: int, ask: bytes, answer: bytes
) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    for _ in range(50):
        connection.asks.put(ask)
        connection.settle(dice)
        connection.answers.put(answer)
        connection.settle(dice)
    connection.close()
    found = streams.session.records(100)
    assert not found["stream_id"].any()
    for role in (Role.CLIENT, Role.SERVER):
        assert np.count_nonzero((found["role"] == role) & (found["excluded"] == Excluded.NONE)) == 50


@pytest.mark.parametrize("ask", [PREFACE + b"rubbish, and no SETTINGS at all", PREFACE[:9]], ids=["rubbish", "no more"])
def test_what_begins_as_http2_and_is_none_is_measured_by_turns_from_where_that_shows(
    streams: Streams, port: int, ask: bytes
) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    for _ in range(50):
        for way, message in zip(connection.ways, (ask, b"short"), strict=True):
            way.put(message)
            connection.settle(dice)
    connection.close()
    found = streams.session.records(2 * 47)
    assert not found["stream_id"].any()
    for role in (Role.CLIENT, Role.SERVER):
        events = found[(found["role"] == role) & (found["excluded"] == Excluded.NONE)]
        assert 47 <= len(events) <= 50
        assert {(len(ask), len(b"short"))} == set(zip(events["request_bytes"], events["response_bytes"], strict=True))


def test_no_byte_of_a_message_leaves_the_kernel(streams: Streams, port: int) -> None:
    """Header blocks, data, and what a connection says that is no HTTP/2 at all."""
    secret = b"CANARY-01234567-"
    streams.measure(port)
    connection, other, dice = Connection.open(port), Connection.open(port), Random(SEED)
    connection.greet()
    for stream in range(1, 41, 2):
        block = frame(Type.HEADERS, END_HEADERS, stream, secret * 3)
        connection.asks.put(block, frame(Type.DATA, END_STREAM, stream, secret * 50))
        connection.settle(dice)
        if stream < 20:
            connection.answers.put(block, frame(Type.DATA, END_STREAM, stream, secret * 50))
        other.asks.put(secret * 2)
        other.settle(dice)
        other.answers.put(secret)
        other.settle(dice)
    left = streams.programs.open_streams().tobytes()
    assert len(left) > 20 * 200
    connection.close()
    other.close()
    told = streams.records_of_ended().tobytes() + streams.turns().tobytes()
    assert len(told) > 80 * 200
    for some in (left, told):
        assert not any(secret[at : at + 4] in some for at in range(len(secret) - 4))


@pytest.mark.parametrize(("pause_s", "streams_it"), [(0.1, False), (2.5, True)])
def test_an_answer_that_takes_long_to_come_is_no_stream_unless_it_pauses(
    streams: Streams, port: int, pause_s: float, streams_it: bool
) -> None:
    """Two frames of 20 pieces: what comes piece by piece, in longer than a pause, is one answer."""
    streams.measure(port, pause_ns=1_500_000_000)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    ask_only(connection, 1)
    connection.answers.put(frame(Type.HEADERS, END_HEADERS, 1, bytes(10)))
    connection.settle(dice)
    for flags in (0, END_STREAM):
        connection.answers.put(frame(Type.DATA, flags, 1, bytes(20_000)))
        for _ in range(20):
            connection.answers.send(1001, dice)
            connection.answers.receive(1 << 20, dice)
            time.sleep(0.1)
        time.sleep(pause_s)
    connection.settle(dice)
    connection.close()
    found = streams.records_of_ended()
    expected = ExchangeClass.STREAMING if streams_it else ExchangeClass.UNARY
    assert [int(one) for one in found["conn_class"]] == [expected, expected]
