"""Calls of HTTP/2 told by stream, against what both ends did."""

import os
import select
from random import Random

import numpy as np
import pytest

from latencyprobe_agent.kernel.clock import READING_ERROR_NS
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.truth.http2 import END_HEADERS, END_STREAM, Connection, Type, frame, now_ns
from tests.truth.http2_script import Call, Script
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root

CALLS = int(os.environ.get("CALLS", "2000"))
SEED = os.environ.get("SEED", "1")


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
