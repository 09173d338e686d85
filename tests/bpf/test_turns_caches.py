"""Redis and memcached beyond questions and answers: replicas, subscribers, commands that nobody answers.

Events equal what the client counts; pauses of the protocol are nobody's latency. `pytest -s` prints the rows of
docs/software.md.
"""

import socket
import time

import pytest

from latencyprobe_agent.vocabulary.records import Role
from tests.support.ports import free_port
from tests.support.servers import memcached, redis, version
from tests.support.waiting import wait_until
from tests.truth.calls import (
    ROLES,
    Calls,
    assert_events_are_calls,
    assert_nothing_is_lost,
    boot_ns,
    events,
    excluded,
    of_clients,
    tell,
)

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

IDLE_S = 4  # a replica acknowledges once a second
PAUSE_S = 0.4  # above the 250 ms that are silence


class Connection:
    """A client of a protocol of lines, and its log."""

    def __init__(self, port: int, calls: Calls) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._calls = calls
        self.port: int = self._socket.getsockname()[1]

    def ask(self, line: str, end: str = "\r\n", *, before: str = "") -> str:
        """One RPC, in one write with a line `before` it that nobody answers."""
        with self._calls.call():
            self._socket.sendall(f"{before}{line}\r\n".encode())
            return self.await_end(end)

    def tell(self, line: str) -> None:
        """Ask nothing."""
        self._socket.sendall(f"{line}\r\n".encode())

    def await_end(self, end: str) -> str:
        """What the server sends, with or without a question."""
        answer = b""
        while not answer.endswith(end.encode()):
            received = self._socket.recv(4096)
            assert received, f"the server has closed after {answer!r}"
            answer += received
        return answer.decode()

    def close(self) -> None:
        self._socket.close()


def redis_version() -> str:
    return f"Redis {version('redis-server', '--version')}"


def test_an_idle_replica_of_redis_makes_no_event_after_its_sign_in(flushed, tmp_path, port):
    """It acknowledges once a second, which nobody answers; then 60 SETs pass it on the same port."""
    calls, replica_port = Calls(), free_port()
    flushed.measure(port)
    with redis(tmp_path / "master", port, "--repl-diskless-sync-delay", "0"):
        client = Connection(port, calls)
        with redis(tmp_path / "replica", replica_port, "--replicaof", "127.0.0.1", port):
            observer = Connection(replica_port, Calls())
            wait_until(lambda: "master_link_status:up" in observer.ask("INFO replication"), "the replica is there")
            linked_ns = boot_ns()
            time.sleep(IDLE_S)
            for number in range(60):
                assert client.ask(f"SET key {number}") == "+OK\r\n"
                time.sleep(0.05)
            observer.close()
        client.close()
    of_client, of_replica = of_clients(flushed.records_of_ended(), client.port)
    tell(redis_version(), "60 SETs beside an idle replica", calls, of_client)
    tell(redis_version(), "the replica itself", "its sign-in", of_replica)
    assert_events_are_calls(calls, of_client)
    assert_nothing_is_lost(of_client)
    for role in ROLES:
        mine = events(of_replica, role)
        starts_ns = mine["send_start_ns" if role is Role.CLIENT else "ready_first_ns"]
        assert (starts_ns < linked_ns).all(), f"{role.name}: {(starts_ns >= linked_ns).sum()} events of a replica"
        assert excluded(of_replica, role)["push"] > 0


def test_messages_to_a_subscriber_of_redis_are_pushes(flushed, tmp_path, port):
    """What is published is an RPC of who publishes, and none of who receives it."""
    published, subscribed = Calls(), Calls()
    flushed.measure(port)
    with redis(tmp_path / "redis", port):
        publisher, subscriber = Connection(port, published), Connection(port, subscribed)
        subscriber.ask("SUBSCRIBE news")
        for number in range(8):
            time.sleep(PAUSE_S)
            assert publisher.ask(f"PUBLISH news {number}") == ":1\r\n"
            subscriber.await_end(f"{number}\r\n")
        subscriber.close()
        publisher.close()
    of_publisher, of_subscriber = of_clients(flushed.records_of_ended(), publisher.port)
    tell(redis_version(), "PUBLISH", published, of_publisher)
    tell(redis_version(), "SUBSCRIBE, and 8 messages that come", subscribed, of_subscriber)
    assert_events_are_calls(published, of_publisher)
    assert_nothing_is_lost(of_publisher)
    assert_events_are_calls(subscribed, of_subscriber, missing=1)  # the answer goes on after a pause: streaming
    for role in ROLES:
        assert excluded(of_subscriber, role)["push"] >= 7


def test_a_noreply_of_memcached_is_one_way_or_part_of_the_request_behind_it(flushed, port):
    """Behind a pause it was nobody's request; in one write with a get nobody can tell the two apart."""
    calls = Calls()
    flushed.measure(port)
    with memcached(port):
        client = Connection(port, calls)
        for _ in range(6):
            client.ask("get key", "END\r\n")
            client.tell("set key 0 0 5 noreply\r\nvalue")
            time.sleep(PAUSE_S)
            client.ask("get key", "END\r\n")
            client.ask("get key", "END\r\n", before="set key 0 0 5 noreply\r\nvalue\r\n")
        client.close()
    records = flushed.records_of_ended()
    tell(f"memcached {version('memcached', '--version')}", "get, and set with noreply", calls, records)
    assert_events_are_calls(calls, records)
    assert_nothing_is_lost(records)
    for role in ROLES:
        assert excluded(records, role) == {"oneway": 6}
