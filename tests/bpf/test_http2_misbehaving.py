"""Peers that break the rules of HTTP/2, by mistake or on purpose: what they do costs nobody else anything."""

from random import Random

import pytest

from latencyprobe_agent.vocabulary.records import Outcome, Role
from tests.truth.http2 import END_HEADERS, END_STREAM, Connection, Type, frame
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root

ASK = END_STREAM | END_HEADERS


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
