"""How a connection of HTTP/2 may begin: what both ends say before the first call is no call."""

from collections import Counter
from random import Random

import pytest

from latencyprobe_agent.vocabulary.records import Excluded
from tests.truth.http2 import END_HEADERS, END_STREAM, PREFACE, Connection, Type, frame
from tests.truth.streams import Streams, assert_unary

pytestmark = pytest.mark.root

PAUSE_NS = 250_000_000  # as plans have it
SETTINGS, SETTINGS_ACK = frame(Type.SETTINGS, 0, 0, b""), frame(Type.SETTINGS, 1, 0, b"")


@pytest.mark.parametrize("read", [True, False], ids=["the server has read it", "at accept"])
@pytest.mark.parametrize("cut", [9, 20, len(PREFACE)])
def test_settings_of_the_server_that_come_between_the_clients_preface_and_settings_are_no_answer(
    streams: Streams, port: int, cut: int, read: bool
) -> None:
    """Go's gRPC writes them one after the other."""
    streams.measure(port, pause_ns=PAUSE_NS)
    connection, dice, whole = Connection.open(port), Random(1), 1 << 20
    asks, answers = connection.ways
    asks.put(PREFACE[:cut])
    asks.send(whole, dice)
    if read:
        asks.receive(whole, dice)
    answers.put(SETTINGS)
    answers.send(whole, dice)
    answers.receive(whole, dice)
    asks.put(PREFACE[cut:], SETTINGS, SETTINGS_ACK)
    connection.settle(dice)
    for stream in (1, 3):
        for way in connection.ways:
            way.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, stream, bytes(10)))
            connection.settle(dice)
    connection.close()
    assert_unary(streams.records_of_ended(), 2)
    told = Counter(Excluded(int(one)).name for one in streams.turns()["excluded"])
    assert told.keys() <= {"SETUP"}, told
