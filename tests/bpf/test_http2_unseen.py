"""Frames that no hook shows, sent by sendfile or read without a copy: what is told of their calls, and of others."""

import os
import select
import socket
from pathlib import Path
from random import Random

import pytest

from latencyprobe_agent.kernel.clock import READING_ERROR_NS
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.truth.http2 import ASK, END_HEADERS, END_STREAM, Connection, Type, Way, frame, now_ns
from tests.truth.http2_script import SEED, ask_only
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root


def send(way: Way) -> None:
    """Send all that is queued."""
    while way.queue:
        way.send(1 << 20, Random(SEED))


def send_unseen(way: Way, frames: bytes, folder: Path) -> None:
    """Send a file of them."""
    (folder / "file").write_bytes(frames)
    with (folder / "file").open("rb") as file:
        assert os.sendfile(way.writer.fileno(), file.fileno(), 0, len(frames)) == len(frames)
    way.skip(len(frames))


def read(way: Way, count: int, flags: int = 0) -> None:
    """Read so many bytes; with MSG_TRUNC they are dropped, and no hook shows them."""
    while count:
        assert select.select([way.reader], [], [], 10)[0], "bytes do not move"
        began_ns = now_ns()
        moved = len(way.reader.recv(count, flags))
        assert moved, "the connection has ended"
        way.read.note(moved, began_ns)
        count -= moved


def greeted(port: int) -> Connection:
    """A connection whose ends have greeted, and had one call."""
    connection = Connection.open(port)
    connection.greet()
    ask_only(connection, 1)
    connection.answers.put(frame(Type.HEADERS, ASK, 1, bytes(10)))
    connection.settle(Random(SEED))
    return connection


@pytest.mark.parametrize("headers_too", [False, True], ids=["payload", "whole frames"])
def test_bytes_that_no_hook_shows_cost_what_is_open_only_where_headers_are_among_them(
    streams: Streams, port: int, tmp_path: Path, headers_too: bool
) -> None:
    """A server that sends its file's bytes by sendfile, as DATA that it has announced, or with all their headers."""
    streams.measure(port)
    connection, dice, data = Connection.open(port), Random(SEED), bytes(5000)
    connection.greet()

    def answer(stream: int) -> None:
        connection.answers.put(frame(Type.HEADERS, END_HEADERS, stream, bytes(10)))
        connection.answers.put(frame(Type.DATA, END_STREAM, stream, data))
        connection.settle(dice)

    ask_only(connection, 4)
    answer(1)
    connection.answers.put(frame(Type.HEADERS, END_HEADERS, 3, bytes(10)))
    whole = frame(Type.DATA, END_STREAM, 3, data)
    shown = b"" if headers_too else whole[:9]
    connection.answers.put(shown)
    connection.settle(dice)
    send_unseen(connection.answers, whole[len(shown) :], tmp_path)
    connection.settle(dice)
    for stream in (5, 7):
        answer(stream)
    ask_only(connection, 10, first=9)
    for stream in range(9, 29, 2):
        answer(stream)
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        told = by_id(found, role)
        out_of_step = {stream for stream, one in told.items() if one["excluded"] == Excluded.OUT_OF_STEP}
        lost = {3, 5, 7} if headers_too and role is Role.SERVER else set()
        assert out_of_step == lost
        assert told.keys() >= {1, 3, 5, 7, *range(11, 29, 2)}
        assert all(one["excluded"] == Excluded.NONE for stream, one in told.items() if stream not in lost)


def test_calls_that_passed_unseen_are_counted_as_they_are_answered_though_nothing_comes_behind_them(
    streams: Streams, port: int, tmp_path: Path
) -> None:
    """Ten at once, which neither end shows: no later frame of the client tells that its place was lost."""
    streams.measure(port)
    connection = greeted(port)
    asks = b"".join(frame(Type.HEADERS, ASK, stream, bytes(10)) for stream in range(3, 23, 2))
    send_unseen(connection.asks, asks, tmp_path)
    read(connection.asks, len(asks), socket.MSG_TRUNC)
    for stream in range(3, 23, 2):
        connection.answers.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
        connection.settle(Random(SEED))
    connection.close()
    assert set(streams.records_of_ended()["stream_id"].tolist()) == {1}
    counts = streams.session.programs.counts()[1]
    assert counts["excluded"][:, Excluded.OUT_OF_STEP].sum() == 2 * 10, "streams 3 to 21, at both ends"


@pytest.mark.parametrize("goes_on", [True, False], ids=["another call", "the client closes"])
def test_an_answer_whose_last_bytes_are_read_unseen_ended_as_it_came_whatever_comes_next(
    streams: Streams, port: int, goes_on: bool
) -> None:
    streams.measure(port)
    connection = greeted(port)
    ask_only(connection, 1, first=3)
    connection.answers.put(frame(Type.HEADERS, END_HEADERS, 3, bytes(10)), frame(Type.DATA, END_STREAM, 3, bytes(5000)))
    send(connection.answers)
    read(connection.answers, 19 + 9 + 100)
    read(connection.answers, 4900, socket.MSG_TRUNC)
    was_read_ns = now_ns() + READING_ERROR_NS
    if goes_on:
        ask_only(connection, 1, first=5)
        connection.answers.put(frame(Type.HEADERS, ASK, 5, bytes(10)))
        connection.settle(Random(SEED))
    connection.close()
    client = by_id(streams.records_of_ended(), Role.CLIENT)
    assert {(one["outcome"], one["excluded"]) for one in client.values()} == {(Outcome.OK, Excluded.NONE)}
    assert client[3]["read_last_ns"] <= was_read_ns
    approximate = {stream for stream, one in client.items() if one["flags"] & ExchangeFlags.READ_APPROX}
    assert approximate == {3}


def test_a_request_whose_last_bytes_are_read_unseen_makes_its_call_no_stream(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection = greeted(port)
    connection.asks.put(frame(Type.HEADERS, END_HEADERS, 3, bytes(10)), frame(Type.DATA, END_STREAM, 3, bytes(5000)))
    send(connection.asks)
    read(connection.asks, 19 + 9)
    read(connection.asks, 5000, socket.MSG_TRUNC)
    connection.answers.put(frame(Type.HEADERS, ASK, 3, bytes(10)))
    connection.settle(Random(SEED))
    connection.close()
    server = by_id(streams.records_of_ended(), Role.SERVER)[3]
    assert (server["outcome"], server["conn_class"]) == (Outcome.OK, ExchangeClass.UNARY)
    assert server["flags"] & ExchangeFlags.READ_APPROX
    assert server["ready_last_ns"] <= server["read_last_ns"] <= server["send_start_ns"]


def test_a_message_that_is_left_before_its_last_bytes_were_read_has_failed(streams: Streams, port: int) -> None:
    streams.measure(port)
    connection = greeted(port)
    ask_only(connection, 1, first=3)
    connection.answers.put(frame(Type.HEADERS, END_HEADERS, 3, bytes(10)), frame(Type.DATA, END_STREAM, 3, bytes(5000)))
    send(connection.answers)
    read(connection.answers, 19 + 9)
    read(connection.answers, 4999, socket.MSG_TRUNC)
    connection.close()
    client = by_id(streams.records_of_ended(), Role.CLIENT)[3]
    assert client["outcome"] != Outcome.OK


@pytest.mark.parametrize("role", [Role.CLIENT, Role.SERVER], ids=["read", "sent"])
def test_an_answer_whose_headers_pass_unseen_before_the_connection_is_left_is_out_of_step_and_no_failure(
    streams: Streams, port: int, tmp_path: Path, role: Role
) -> None:
    streams.measure(port)
    connection = greeted(port)
    ask_only(connection, 1, first=3)
    answer = frame(Type.HEADERS, ASK, 3, bytes(10))
    if role is Role.SERVER:
        send_unseen(connection.answers, answer, tmp_path)
    else:
        connection.answers.put(answer)
        send(connection.answers)
    read(connection.answers, len(answer), socket.MSG_TRUNC if role is Role.CLIENT else 0)
    connection.close()
    found = streams.records_of_ended()
    assert by_id(found, role)[3]["excluded"] == Excluded.OUT_OF_STEP
    other = by_id(found, Role.SERVER if role is Role.CLIENT else Role.CLIENT)[3]
    assert (other["outcome"], other["excluded"]) == (Outcome.OK, Excluded.NONE)


def test_the_fins_of_a_connection_that_is_half_closed_and_never_answered_are_no_frames(
    streams: Streams, port: int
) -> None:
    streams.measure(port)
    connection = greeted(port)
    ask_only(connection, 1, first=3)
    for way in connection.ways:
        way.writer.shutdown(socket.SHUT_WR)
        assert select.select([way.reader], [], [], 10)[0]
        assert way.reader.recv(1) == b""
    connection.close()
    found = streams.records_of_ended()
    for role in (Role.CLIENT, Role.SERVER):
        one = by_id(found, role)[3]
        assert one["outcome"] != Outcome.OK
        assert one["excluded"] == Excluded.NONE
