"""Connections of HTTP/2 whose plan changes in the midst of them."""

import select
import socket
from random import Random

import pytest

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.truth.http2 import ASK, Connection, Type, frame
from tests.truth.http2_script import SEED, Script, ask_only
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root


def test_what_is_open_when_the_plan_changes_counts_for_nobody_and_what_comes_next_for_the_new_one(
    streams: Streams, port: int
) -> None:
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()

    def call(first: int, count: int) -> None:
        ask_only(connection, count, first)
        for stream in range(first, first + 2 * count, 2):
            connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.settle(dice)

    call(1, 10)
    ask_only(connection, 5, first=21)
    streams.measure(port, thresholds_ns=(7_000_000,))
    for stream in range(21, 31, 2):
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
    connection.settle(dice)
    call(31, 10)
    streams.measure(port, thresholds_ns=(7_000_000,), idle_timeout_ns=3_000_000_000)
    call(51, 10)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        told = by_id(found, role)
        assert told.keys() == set(range(1, 71, 2))
        dropped = {stream for stream, one in told.items() if one["excluded"] == Excluded.PLAN}
        assert dropped == set(range(21, 31, 2))
        sets = {stream: int(one["target_set"]) for stream, one in told.items()}
        assert len({sets[stream] for stream in range(1, 31, 2)}) == 1
        assert len({sets[stream] for stream in range(31, 71, 2)}) == 1
        assert sets[1] != sets[31]


def test_a_plan_that_asks_for_turns_and_again_for_streams_is_followed_in_the_midst_of_a_connection(
    streams: Streams, port: int
) -> None:
    streams.measure(port)
    connection = Connection.open(port)
    connection.greet()
    script = Script(connection, SEED, at_once=3, cut=0)
    script.play(100)
    streams.session.measure(port)
    script.play(100)
    streams.measure(port)
    script.play(300)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        told = set(by_id(found, role))
        before = {stream for stream in told if stream < 200}
        after = {stream for stream in told if stream > 400}
        assert before == set(range(1, 200, 2))
        assert told == before | after
        assert after == set(range(min(after), 1000, 2))
        assert min(after) < 600


def test_calls_that_wait_to_be_read_while_the_plan_changes_are_not_missed(streams: Streams, port: int) -> None:
    """A server reads the first half of what had come by then, and the other half a call later."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    connection.settle(dice)
    asked = [frame(Type.HEADERS, ASK, stream, bytes(10)) for stream in (1, 3, 5, 7)]
    connection.asks.put(*asked)
    connection.asks.send(1 << 20, dice)
    streams.measure(port, thresholds_ns=(7_000_000,))
    for _ in range(2):
        connection.server.recv(2 * len(asked[0]))
    connection.asks.read.note(4 * len(asked[0]), 0)

    def answer(*numbers: int) -> None:
        for stream in numbers:
            connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.settle(dice)

    answer(1, 3, 5, 7)
    ask_only(connection, 3, first=9)
    answer(9, 11, 13)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        reasons = {stream: Excluded(int(one["excluded"])) for stream, one in by_id(found, role).items()}
        assert reasons == dict.fromkeys((1, 3, 5, 7), Excluded.PLAN) | dict.fromkeys((9, 11, 13), Excluded.NONE)


def test_a_connection_that_ends_before_it_is_decided_on_again_counts_for_nobody(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection = Connection.open(port)
    connection.greet()
    ask_only(connection, 3)
    streams.measure(port, thresholds_ns=(7_000_000,))
    connection.client.close()
    connection.server.close()
    found = streams.records_of_ended()
    assert found["excluded"].tolist() == 6 * [Excluded.PLAN]


def call(connection: Connection, first: int, count: int) -> None:
    """So many calls, one after the other."""
    dice = Random(SEED)
    for stream in range(first, first + 2 * count, 2):
        ask_only(connection, 1, stream)
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.settle(dice)


def test_tries_to_find_a_place_that_was_lost_are_not_those_of_a_connection_that_a_new_plan_adopts(
    streams: Streams, port: int
) -> None:
    """Its answers were out of step once, long before there was a plan for turns and the one before again."""
    streams.measure(port)
    connection, dice = Connection.open(port), Random(SEED)
    connection.greet()
    connection.settle(dice)
    connection.answers.put(frame(Type.PRIORITY, 0, 1, bytes(4)))  # no frame: it has 5 bytes
    connection.settle(dice)
    for _ in range(100):
        connection.answers.put(bytes(30))
        connection.settle(dice)
    call(connection, 1, 10)
    streams.session.measure(port)
    call(connection, 21, 10)
    streams.measure(port)
    call(connection, 41, 10)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        assert set(by_id(found, role)) >= {*range(5, 21, 2), *range(47, 61, 2)}


@pytest.mark.parametrize("between", ["turns", "another port", "nothing"])
def test_calls_that_passed_under_another_plan_are_none_that_this_one_has_missed(
    streams: Streams, port: int, between: str
) -> None:
    streams.measure(port)
    connection = Connection.open(port)
    connection.greet()
    call(connection, 1, 10)
    ask_only(connection, 2, 21)
    if between == "turns":
        streams.session.measure(port)
    else:
        streams.measure(*([free_port()] if between == "another port" else []))
        streams.session.programs.flush()
    call(connection, 25, 50)
    streams.measure(port)
    call(connection, 125, 10)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        told = by_id(found, role)
        assert {stream for stream, one in told.items() if one["excluded"] == Excluded.PLAN} == {21, 23}
        assert set(told) >= {*range(1, 25, 2), *range(131, 145, 2)}
    assert streams.session.programs.counts()[1]["excluded"][:, Excluded.OUT_OF_STEP].sum() == 0


def test_calls_are_answered_though_sequence_numbers_came_round_under_another_plan(streams: Streams, port: int) -> None:
    """What comes 2 GiB behind a place seems to lie before it."""
    streams.measure(port)
    connection = Connection.open(port)
    connection.greet()
    call(connection, 1, 10)
    streams.session.measure(port)
    send_unheeded(connection.server, connection.client, (2 << 30) + (64 << 20))
    streams.measure(port)
    call(connection, 21, 20)
    connection.close()
    found = streams.records_of_ended()
    assert set(found["outcome"].tolist()) == {Outcome.OK}
    for role in (Role.CLIENT, Role.SERVER):
        assert set(by_id(found, role)) >= {*range(1, 21, 2), *range(27, 61, 2)}


def send_unheeded(writer: socket.socket, reader: socket.socket, count: int) -> None:
    """Send so many bytes of no meaning."""
    some, read = bytes(1 << 20), bytearray(1 << 20)
    sent = received = 0
    while received < count:
        if sent < count and select.select([], [writer], [], 0)[1]:
            sent += writer.send(some[: count - sent])
        if select.select([reader], [], [], 0)[0]:
            received += reader.recv_into(read)
