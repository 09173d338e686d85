"""`latencyprobe streams`: what is open, how old, and in what state; as it is started by a person."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest
from click.testing import CliRunner

from latencyprobe_agent.tools.streams import streams
from latencyprobe_agent.tools.tail import timestamp
from tests.support.ports import free_port
from tests.truth.http2 import END_HEADERS, END_STREAM, Connection, Type, frame
from tests.truth.streams import of_kernels_that_tell_streams

COMMAND = Path(sys.executable).with_name("latencyprobe")
ASK = END_STREAM | END_HEADERS


def test_a_port_is_needed() -> None:
    said = CliRunner().invoke(streams, ["--older-than", "1s"])
    assert said.exit_code == 2
    assert "--port" in said.output


def first_look(lines: IO[str], count: int, since: str) -> list[dict[str, Any]]:
    """The first look since then that shows so many; one before may have come when some were too young."""
    told: list[dict[str, Any]] = []
    while len(told) < count:
        one = json.loads(lines.readline())
        if one["time"] < since:
            continue
        told = [*(told if told and told[0]["time"] == one["time"] else []), one]
    return told


@pytest.mark.root
def test_open_calls_are_told_with_their_state_the_oldest_first_and_those_that_ended_are_not() -> None:
    of_kernels_that_tell_streams()
    port, dice = free_port(), Random(1)
    command = [COMMAND, "streams", "--port", str(port), "--older-than", "100ms", "--interval", "500ms", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        assert tool.stderr is not None
        assert "attached" in tool.stderr.readline()
        connection = Connection.open(port)
        connection.greet()
        for stream, flags in ((1, ASK), (3, ASK), (5, ASK), (7, END_HEADERS)):
            connection.asks.put(frame(Type.HEADERS, flags, stream, bytes(10)))
            connection.settle(dice)
        connection.answers.put(frame(Type.HEADERS, END_HEADERS, 3, bytes(30)))
        connection.answers.put(frame(Type.HEADERS, ASK, 5, bytes(30)))
        connection.settle(dice)
        told = first_look(tool.stdout, 6, timestamp(time.time_ns()))
        connection.close()
        tool.terminate()
        assert tool.wait(60) == 0
        assert "lost: none" in tool.stderr.read()
    assert [one["age_ns"] for one in told] == sorted((one["age_ns"] for one in told), reverse=True)
    for role in ("client", "server"):
        mine = {one["stream_id"]: one for one in told if one["role"] == role}
        assert {number: one["state"] for number, one in mine.items()} == {1: "waiting", 3: "answering", 7: "asking"}
        assert mine[3]["response_bytes"] == 39
        for one in mine.values():
            assert one["server"] == f"127.0.0.1:{port}"
            assert one["request_bytes"] == 19
            assert one["age_ns"] >= one["idle_ns"] >= 0
            assert one["age_ns"] > 100_000_000
            assert one["tgid"] == os.getpid()


@pytest.mark.root
def test_it_says_that_nothing_is_open() -> None:
    of_kernels_that_tell_streams()
    command = [COMMAND, "streams", "--port", str(free_port()), "--duration", "300ms"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.endswith(": 0 open, 0 for longer than 1s\n")
