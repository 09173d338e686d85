"""Peers that break the rules of HTTP/2, by mistake or on purpose: what they do costs nobody else anything."""

import socket
from random import Random

import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.truth.http2 import ASK, END_HEADERS, END_STREAM, Connection, Type, frame
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root

_DATA = 128 << 10


def test_a_message_ends_once_however_often_a_peer_says_so(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(1)
    connection.greet()
    connection.settle(dice)
    connection.asks.put(frame(Type.HEADERS, ASK, 1, bytes(10)), frame(Type.DATA, END_STREAM, 1, b""))
    connection.asks.put(*[frame(Type.HEADERS, ASK, 3, bytes(10))] * 3)
    connection.asks.put(frame(Type.HEADERS, END_HEADERS, 5, bytes(10)))
    connection.settle(dice)
    connection.answers.put(frame(Type.HEADERS, ASK, 5, bytes(10)), *[frame(Type.DATA, END_STREAM, 5, b"")] * 2)
    connection.settle(dice)
    assert streams.open() == 6, "nothing was answered but a request that goes on"
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        told = by_id(found, role)
        assert told.keys() == {1, 3, 5}
        assert [told[stream]["outcome"] == Outcome.OK for stream in (1, 3, 5)] == [False, False, True]


def test_a_gap_in_the_numbers_is_no_more_calls_than_fit_between(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(1)
    connection.greet()
    for one in (
        frame(Type.HEADERS, ASK, 1, bytes(10)),
        frame(Type.PRIORITY, 0, 1, bytes(4)),  # no frame: it has 5 bytes
        frame(Type.PING, 0, 0, bytes(8)),  # all of a call: here frames are known again
        frame(Type.HEADERS, ASK, 0x7FFFFFFF, bytes(10)),
    ):
        connection.asks.put(one)
        connection.settle(dice)
    connection.close()
    assert set(streams.records_of_ended()["stream_id"].tolist()) == {1, 0x7FFFFFFF}
    counts = streams.session.programs.counts()[1]
    assert 2 <= counts["excluded"][:, Excluded.OUT_OF_STEP].sum() <= 8, "stream 1, and 30 bytes, at both ends"


def test_calls_that_were_shown_and_never_written_are_no_place_to_count_from(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(1)
    connection.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
    connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    connection.greet()
    connection.asks.put(frame(Type.HEADERS, END_HEADERS, 1, bytes(10)))
    connection.settle(dice)
    opens, ping = frame(Type.HEADERS, ASK, 3, bytes(10)), frame(Type.PING, 0, 0, bytes(8))
    connection.asks.put(frame(Type.DATA, 0, 1, bytes(_DATA)), opens)
    connection.asks.send(2 << 20, dice)
    connection.asks.queue[-len(opens) :] = ping
    connection.asks.queued += len(ping) - len(opens)
    connection.settle(dice)
    for one in (ping, frame(Type.HEADERS, ASK, 0x7FFFFFFF, bytes(10))):
        connection.asks.put(one)
        connection.settle(dice)
    connection.close()
    streams.records_of_ended()
    counts = streams.session.programs.counts()[1]
    assert counts["excluded"][:, Excluded.OUT_OF_STEP].sum() < _DATA / 10 + 100, "no more than fit into what was unseen"


def test_numbers_that_a_client_skips_are_no_calls_where_the_answers_alone_were_lost(
    streams: Streams, port: int
) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(1)
    connection.greet()
    connection.asks.put(frame(Type.HEADERS, ASK, 1, bytes(10)))
    connection.settle(dice)
    for one in (frame(Type.PRIORITY, 0, 1, bytes(4)), frame(Type.PING, 0, 0, bytes(8))):
        connection.answers.put(one)
        connection.settle(dice)
    connection.asks.put(frame(Type.PING, 0, 0, bytes(8)) * 10, frame(Type.HEADERS, ASK, 21, bytes(10)))
    connection.settle(dice)
    connection.close()
    streams.records_of_ended()
    counts = streams.session.programs.counts()[1]
    assert counts["excluded"][:, Excluded.OUT_OF_STEP].sum() == 2, "stream 1, at both ends"


def test_calls_that_are_answered_where_the_client_is_not_understood_any_more_are_counted(
    streams: Streams, port: int
) -> None:
    """Its frames are never whole in a call again, until its connection ends."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(1)
    connection.greet()
    connection.asks.put(frame(Type.HEADERS, ASK, 1, bytes(10)), frame(Type.PRIORITY, 0, 1, bytes(4)))  # no frame
    connection.settle(dice)
    for stream in range(3, 15, 2):
        whole = frame(Type.HEADERS, ASK, stream, bytes(10))
        for part in (whole[:5], whole[5:]):
            connection.asks.put(part)
            connection.settle(dice)
        if stream != 7:
            connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
            connection.settle(dice)
    connection.close()
    assert set(streams.records_of_ended()["stream_id"].tolist()) == {1}
    counts = streams.session.programs.counts()[1]
    assert counts["excluded"][:, Excluded.OUT_OF_STEP].sum() == 2 * 7, "streams 1 to 13, at both ends"


def test_calls_made_at_once_where_the_client_is_not_understood_are_counted_as_each_is_answered(
    streams: Streams, port: int
) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(1)
    connection.greet()
    connection.asks.put(frame(Type.HEADERS, ASK, 1, bytes(10)), frame(Type.PRIORITY, 0, 1, bytes(4)))  # no frame
    connection.settle(dice)
    asks = b"".join(frame(Type.HEADERS, ASK, stream, bytes(10)) for stream in range(3, 23, 2))
    for part in (asks[:5], asks[5:]):
        connection.asks.put(part)
        connection.settle(dice)
    for stream in range(3, 23, 2):
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.settle(dice)
    connection.close()
    assert set(streams.records_of_ended()["stream_id"].tolist()) == {1}
    counts = streams.session.programs.counts()[1]
    assert counts["excluded"][:, Excluded.OUT_OF_STEP].sum() == 2 * 11, "streams 1 to 21, at both ends"
