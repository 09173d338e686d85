"""Ends without answers: requests that nobody is to answer, those that nobody did answer, and the ends' roles."""

import http.client
import logging.handlers
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from latencyprobe_agent.vocabulary.records import Outcome
from tests.support.ports import free_port
from tests.support.servers import nginx, redis, running, version
from tests.support.waiting import wait_until
from tests.truth.calls import ROLES, Calls, assert_events_are_calls, events, excluded, tell

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

PAUSE_S = 0.4  # above the 200 ms that are silence


def test_log_lines_that_nobody_answers_are_no_events(flushed, tmp_path, port):
    """Python's handler for syslog, and socat that writes down what comes."""
    flushed.measure(port)
    received = tmp_path / "log"
    with running("socat", "-u", f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", f"CREATE:{received}", port=port):
        handler = logging.handlers.SysLogHandler(("127.0.0.1", port), socktype=socket.SOCK_STREAM)
        log = logging.Logger("lines")
        log.addHandler(handler)
        for number in range(8):
            log.info("line %d", number)
            time.sleep(PAUSE_S)
        handler.close()
        wait_until(lambda: b"line 7" in received.read_bytes(), "all lines have come")
    records = flushed.records_of_closed(2)
    tell(f"socat {version('socat', '-V')}", "8 log lines of SysLogHandler", 0, records)
    for role in ROLES:
        assert not len(events(records, role))
        assert excluded(records, role)["oneway"] + excluded(records, role)["push"] == 8


def test_a_server_that_closes_without_an_answer_fails_when_it_does_and_not_a_second_later(flushed, tmp_path, port):
    """nginx's 444. The client is told at once, and closes its end a second later."""
    calls = Calls()
    flushed.measure(port)

    def ask(_: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            with suppress(EOFError), calls.call():
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if not client.recv(100):
                    raise EOFError
            time.sleep(1)

    with nginx(tmp_path, port, "return 444;"), ThreadPoolExecutor(10) as pool:
        list(pool.map(ask, range(10)))
    records = flushed.records_of_ended()
    tell(nginx_version(), "444: closed without an answer", calls, records)
    assert calls.failed == len(calls) == 10
    assert_events_are_calls(calls, records)
    for role in ROLES:
        assert (events(records, role)["outcome"] == Outcome.UNANSWERED).all()


def test_a_client_that_closes_as_soon_as_it_sees_the_end_is_taken_for_one_that_says_goodbye(flushed, tmp_path, port):
    """A limit: Python's client closes at once where there was no answer. So does one of MariaDB behind COM_QUIT."""
    calls = Calls()
    flushed.measure(port)
    with nginx(tmp_path, port, "return 444;"):
        for _ in range(10):
            client = http.client.HTTPConnection("127.0.0.1", port)
            with suppress(http.client.RemoteDisconnected), calls.call():
                client.request("GET", "/")
                client.getresponse()
    records = flushed.records_of_ended()
    tell(nginx_version(), "444, and the client closes at once", calls, records)
    for role in ROLES:
        assert len(events(records, role)) + excluded(records, role)["teardown"] == calls.failed == 10


def nginx_version() -> str:
    return f"nginx {version('nginx', '-v')}"


def test_a_client_whose_own_port_is_the_targets_makes_no_event(flushed, tmp_path, port):
    """Its connection is older than the measurement, so that nobody saw who connected."""
    other = free_port()
    with (
        redis(tmp_path / "redis", other),
        socket.create_connection(("127.0.0.1", other), source_address=("127.0.0.1", port)) as client,
    ):
        flushed.measure(port)
        for _ in range(7):
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"
            time.sleep(0.1)
    records = flushed.records_of_ended()
    tell(f"Redis {version('redis-server', '--version')}", "a client from the target's port", 0, records)
    for role in ROLES:
        assert not len(events(records, role))
