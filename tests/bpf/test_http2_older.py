"""Connections that are older than the programs: where frames lie is found, or that they have none."""

from random import Random

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.truth.http2 import ASK, END_HEADERS, END_STREAM, Connection, Type, frame
from tests.truth.http2_script import SEED, Script, ask_only
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root


def test_connection_that_is_older_is_measured_from_the_first_whole_frames_on(streams: Streams, port: int) -> None:
    connection = Connection.open(port)
    connection.greet()
    script = Script(connection, SEED, at_once=3, cut=0)
    script.play(200)
    streams.measure(port)
    script.play(500)
    connection.close()
    found = streams.records_of_ended()
    client, server = by_id(found, Role.CLIENT), by_id(found, Role.SERVER)
    first = min(client)
    assert first < 2 * 250, "soon after it was measured"
    asked = {call.stream for call in script.calls if call.stream >= first}
    assert client.keys() == asked
    first = min(server)
    assert first < 2 * 250, "soon after it was measured"
    assert server.keys() == {call.stream for call in script.calls if call.stream >= first}


def test_connection_that_is_adopted_amid_an_upload_is_measured_from_its_end_on(streams: Streams, port: int) -> None:
    """No packet of an upload is whole frames, and there may be thousands; nothing comes back meanwhile."""
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    upload = frame(Type.DATA, END_STREAM, 1, dice.randbytes(200_000))
    connection.asks.put(frame(Type.HEADERS, END_HEADERS, 1, bytes(10)), upload[:1000])
    connection.settle(dice)
    streams.measure(port)
    for at in range(1000, len(upload), 1000):
        connection.asks.put(upload[at : at + 1000])
        connection.settle(dice)
    for stream in range(1, 2 * 50, 2):
        if stream > 1:
            ask_only(connection, 1, stream)
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.settle(dice)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        assert set(by_id(found, role)) >= set(range(5, 2 * 50, 2))


def test_older_connection_that_is_no_http2_is_measured_by_turns_after_some_calls(streams: Streams, port: int) -> None:
    connection, dice = Connection.open(port), Random(SEED)
    streams.measure(port)
    for _ in range(200):
        connection.asks.put(b"GET / HTTP/1.1\r\nHost: cart\r\n\r\n")
        connection.settle(dice)
        connection.answers.put(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        connection.settle(dice)
    connection.close()
    found = streams.session.records(200)
    assert not found["stream_id"].any()
    for role in (Role.CLIENT, Role.SERVER):
        assert np.count_nonzero((found["role"] == role) & (found["excluded"] == Excluded.NONE)) > 100
