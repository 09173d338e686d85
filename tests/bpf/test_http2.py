"""Calls of HTTP/2 told by stream, against what both ends did."""

import os
import select
import socket
import time
from random import Random

import numpy as np
import pytest

from latencyprobe_agent.kernel.clock import READING_ERROR_NS
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.truth.http2 import END_HEADERS, END_STREAM, Connection, Type, frame, now_ns
from tests.truth.http2_script import SEED, Call, Script, ask_only
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root

CALLS = int(os.environ.get("CALLS", "2000"))


@pytest.mark.parametrize("cut", [20_000, 1])
def test_every_stream_is_told_once_at_each_end_with_the_stamps_of_its_calls(
    streams: Streams, port: int, cut: int
) -> None:
    """Frames of many streams, cut anywhere: at each end each call is told once, and where and when its bytes moved."""
    streams.measure(port)
    connection = Connection.open(port)
    connection.greet()
    script = Script(connection, f"{SEED} {cut}", cut=cut)
    script.play(CALLS if cut > 1 else CALLS // 20)
    connection.close()
    records = streams.records(2 * len(script.calls))
    client, server = by_id(records, Role.CLIENT), by_id(records, Role.SERVER)
    asked = {call.stream for call in script.calls}
    assert client.keys() == asked
    assert server.keys() == asked
    for call in script.calls:
        check(call, connection, client[call.stream], server[call.stream])
    some = halves(records.copy())
    _, counts = np.unique(some.join_key, return_counts=True)
    assert (counts == 2).all(), "each stream's halves have one key, and no other has it"


def check(call: Call, connection: Connection, client: np.void, server: np.void) -> None:
    asks, answers = connection.ways
    request, answer = call.request, call.answer
    whole = request.complete and answer.complete
    for one in (client, server):
        assert one["request_offset"] == request.begin, call
        if whole:
            assert (one["request_bytes"], one["response_bytes"]) == (request.bytes, answer.bytes), (call, one)
            assert one["outcome"] == Outcome.OK, call
        elif answer.complete:  # before its request was: it ended by the reset, or the reset overtook it
            assert one["outcome"] in (Outcome.OK, Outcome.STREAM_RESET), (call, one)
        else:
            assert one["outcome"] == Outcome.STREAM_RESET, (call, one)
        if not call.early and not call.reset:
            assert one["conn_class"] == ExchangeClass.UNARY, (call, one)
            assert one["excluded"] == Excluded.NONE
    if not whole or call.early or call.reset:
        return
    for record, way, message, first, last in (
        (client, asks.sent, request, "send_start_ns", "send_end_ns"),
        (server, asks.read, request, "read_first_ns", "read_last_ns"),
        (server, answers.sent, answer, "send_start_ns", "send_end_ns"),
        (client, answers.read, answer, "read_first_ns", "read_last_ns"),
    ):
        began, ended = way.of_byte(message.end - 1)
        began, ended = began - READING_ERROR_NS, ended + READING_ERROR_NS
        assert began <= record[last] <= ended or record["flags"] & ExchangeFlags.SEND_APPROX, (last, call, record)
        if record is server and first == "read_first_ns":
            began, ended = way.of_byte(message.begin + 8)  # the header's last byte
            assert began - READING_ERROR_NS <= record[first] <= ended + READING_ERROR_NS, (first, call, record)


def test_a_request_after_many_pings_has_the_time_at_which_it_came(streams: Streams, port: int) -> None:
    """Frames that no call is made of, each read on its own: more than there are notes of arrivals."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    for _ in range(40):
        connection.asks.put(frame(Type.PING, 0, 0, bytes(8)))
        connection.settle(dice)
    connection.asks.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, 1, bytes(10)))
    connection.asks.send(1 << 20, dice)
    assert select.select([connection.server], [], [], 10)[0]
    there_ns = now_ns()
    connection.settle(dice)
    connection.answers.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, 1, bytes(10)))
    connection.settle(dice)
    connection.close()
    server = by_id(streams.records_of_ended(), Role.SERVER)[1]
    assert server["ready_first_ns"] <= server["ready_last_ns"] <= there_ns + READING_ERROR_NS
    assert not server["flags"] & ExchangeFlags.READY_APPROX


def test_calls_after_more_arrivals_than_there_was_room_for_are_exact_again(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    connection.settle(dice)
    for _ in range(40):  # none is read meanwhile
        connection.asks.put(frame(Type.PING, 0, 0, bytes(8)))
        connection.asks.send(1 << 20, dice)
    connection.settle(dice)
    for stream in (1, 3, 5):
        connection.asks.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, stream, bytes(10)))
        connection.settle(dice)
        connection.answers.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, stream, bytes(10)))
        connection.settle(dice)
    connection.close()
    server = by_id(streams.records_of_ended(), Role.SERVER)
    assert [bool(server[stream]["flags"] & ExchangeFlags.READY_APPROX) for stream in (3, 5)] == [False, False]


@pytest.mark.parametrize(
    "payload",
    [b"a cart of things, " * 4000, frame(Type.UNKNOWN, 0, 1, b"") * 8000],
    ids=["text", "what may be frames"],
)
def test_an_answer_put_into_a_send_call_that_was_cut_fails_no_call(streams: Streams, port: int, payload: bytes) -> None:
    """As nginx does: behind the frame that was cut, before others that the call has shown already."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
    connection.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    connection.greet()
    for stream in (1, 3, 5, 7):
        connection.asks.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, stream, bytes(10)))
    connection.settle(dice)
    for stream in (1, 3, 5):
        connection.answers.put(frame(Type.HEADERS, END_HEADERS, stream, bytes(10)))
        _, end = connection.answers.put(frame(Type.DATA, END_STREAM, stream, payload))
        if stream == 3:
            behind = end
    connection.answers.send(1 << 20, dice)
    left = behind - connection.answers.sent.moved
    assert left > 0, "the call was cut, long before its last frame"
    late = frame(Type.HEADERS, END_STREAM | END_HEADERS, 7, bytes(9))
    connection.answers.queue[left:left] = late
    connection.answers.queued += len(late)
    connection.settle(dice)
    connection.close()
    found = streams.records_of_ended()
    client, server = by_id(found, Role.CLIENT), by_id(found, Role.SERVER)
    assert client.keys() == server.keys() == {1, 3, 5, 7}
    for one in client.values():
        assert (one["outcome"], one["excluded"]) == (Outcome.OK, Excluded.NONE)
    for one in server.values():
        assert one["outcome"] == Outcome.OK
        assert one["excluded"] in (Excluded.NONE, Excluded.OUT_OF_STEP)


@pytest.mark.parametrize("parts", [1, 2], ids=["HEADERS", "HEADERS and CONTINUATION"])
def test_trailers_without_data_before_them_are_no_beginning_of_the_answer(
    streams: Streams, port: int, parts: int
) -> None:
    """As gRPC sends an error after its header: details that are larger than a frame go on in CONTINUATION."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    ask_only(connection, 1)
    begin, _ = connection.answers.put(frame(Type.HEADERS, END_HEADERS, 1, bytes(10)))
    connection.settle(dice)
    flags = (END_STREAM | END_HEADERS,) if parts == 1 else (END_STREAM, END_HEADERS)
    for kind, flag in zip((Type.HEADERS, Type.CONTINUATION), flags, strict=False):
        connection.answers.put(frame(kind, flag, 1, bytes(10)))
    connection.settle(dice)
    connection.close()
    assert streams.records_of_ended()["response_offset"].tolist() == [begin, begin]


@pytest.mark.parametrize("ending", ["answered", "cut off"])
def test_a_call_whose_client_never_ends_its_request_streams_at_both_ends(
    streams: Streams, port: int, ending: str
) -> None:
    """As calls that stream both ways: a server answers with RST_STREAM behind, or the connection ends."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    connection.asks.put(frame(Type.HEADERS, END_HEADERS, 1, bytes(10)), frame(Type.DATA, 0, 1, bytes(100)))
    connection.settle(dice)
    for kind, flags in [(Type.HEADERS, END_HEADERS), *[(Type.DATA, 0)] * 20]:
        connection.answers.put(frame(kind, flags, 1, bytes(10)))
        connection.settle(dice)
        time.sleep(0.001)  # longer than a round trip here: the client has the answer's beginning, and yet goes on
    if ending == "answered":
        connection.answers.put(frame(Type.DATA, END_STREAM, 1, b""), frame(Type.RST_STREAM, 0, 1, bytes(4)))
        connection.settle(dice)
    connection.close()
    found = streams.records_of_ended()
    assert found["conn_class"].tolist() == [ExchangeClass.STREAMING] * 2
    assert found["excluded"].tolist() == [Excluded.STREAMING] * 2


def test_a_server_that_refuses_a_request_before_it_has_ended_has_answered_a_call(streams: Streams, port: int) -> None:
    """It says so and resets in one call; what the client was about to send, no reply to that, it could not know."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    connection.asks.put(frame(Type.HEADERS, END_HEADERS, 1, bytes(10)))
    connection.settle(dice)
    connection.answers.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, 1, bytes(10)))
    connection.answers.put(frame(Type.RST_STREAM, 0, 1, bytes(4)))
    connection.settle(dice)
    connection.close()
    server = by_id(streams.records_of_ended(), Role.SERVER)[1]
    assert (server["conn_class"], server["outcome"]) == (ExchangeClass.UNARY, Outcome.OK)
