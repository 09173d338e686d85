"""Connections of HTTP/2 that an end leaves while calls are open on them."""

import socket
from random import Random

import pytest

from latencyprobe_agent.kernel.clock import READING_ERROR_NS
from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.truth.http2 import ASK, Connection, Type, frame, now_ns
from tests.truth.http2_script import SEED, ask_only
from tests.truth.lossy import Network
from tests.truth.streams import Streams, by_id

pytestmark = pytest.mark.root


def left_open(port: int, lossy: Network) -> Connection:
    """Two calls are open."""
    ((client, server),) = lossy.connect(port)
    connection = Connection(client, server)
    connection.greet()
    connection.settle(Random(SEED))
    ask_only(connection, 2)
    return connection


def lose_all(lossy: Network) -> None:
    for end in (lossy.client, lossy.server):
        end.filter("input", "meta l4proto tcp drop")


@pytest.mark.parametrize(
    ("role", "finished", "outcome"),
    [
        (Role.CLIENT, False, Outcome.ABORTED),
        (Role.CLIENT, True, Outcome.UNANSWERED),
        (Role.SERVER, False, Outcome.UNANSWERED),
        (Role.SERVER, True, Outcome.ABORTED),
    ],
    ids=["client", "client behind a FIN", "server", "server behind a FIN"],
)
def test_calls_on_a_connection_that_is_closed_end_then_though_its_peer_is_out_of_reach(
    port: int, lossy: Network, role: Role, *, finished: bool, outcome: Outcome, streams: Streams
) -> None:
    """As gRPC closes a connection whose pings are not answered. TCP gives up minutes later, by an error of its own."""
    streams.measure(port)
    connection = left_open(port, lossy)
    end, peer = connection.client, connection.server
    if role is Role.SERVER:
        end, peer = peer, end
    if finished:
        peer.shutdown(socket.SHUT_WR)
        end.setblocking(True)
        end.settimeout(10)
        while end.recv(1 << 16):
            pass
    lose_all(lossy)
    end.close()
    closed_ns = now_ns() + READING_ERROR_NS
    told = by_id(streams.records(2), role)
    assert told.keys() == {1, 3}
    last = "read_last_ns" if role is Role.CLIENT else "send_end_ns"
    for one in told.values():
        assert (one["outcome"], one["excluded"]) == (outcome, Excluded.NONE)
        assert one[last] <= closed_ns


def test_calls_on_a_connection_that_its_client_half_closes_are_answered(
    streams: Streams, port: int, lossy: Network
) -> None:
    streams.measure(port)
    connection = left_open(port, lossy)
    connection.client.shutdown(socket.SHUT_WR)
    assert streams.open() == 4
    connection.answers.put(*[frame(Type.HEADERS, ASK, stream, bytes(10)) for stream in (1, 3)])
    connection.settle(Random(SEED))
    connection.close()
    found = streams.records_of_ended()
    assert len(found) == 4
    assert set(found["outcome"].tolist()) == {Outcome.OK}
