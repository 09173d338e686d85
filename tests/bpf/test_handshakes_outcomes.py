"""Outcomes of handshakes of real sockets, by both methods: refused, unreachable, timed out, aborted, simultaneous."""

import contextlib
import socket
import time

import pytest

from tests.support.waiting import wait_until
from tests.truth.handshaking import (
    CLIENT,
    IS_SYN,
    KERNEL,
    MS,
    RESENT_NS,
    SERVER,
    TC,
    a_socket,
    at_packets,
    dial,
    fails,
    listen,
    outcome,
    size,
)
from tests.truth.netns import INTERFACE, ONCE

pytestmark = [pytest.mark.root, pytest.mark.hideable]


@pytest.mark.usefixtures("needs_storage")
def test_a_closed_port_refuses(ends, watch, port):
    fails(ends[0], port)
    kernel, tc = watch.one(role=CLIENT, method=KERNEL), watch.one(role=CLIENT, method=TC)
    at_server = watch.one(role=SERVER, method=TC)
    assert ("refused", "refused", "refused") == (outcome(kernel), outcome(tc), outcome(at_server))
    assert (True, True) == (kernel["connect_ns"] > 0, tc["rtt_ns"] > 0)
    assert kernel["client_isn"] == tc["client_isn"]


@pytest.mark.parametrize("timeout_s", [None, 5], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("host", ["10.99.0.2", "fd99::2"])
def test_an_icmp_error_is_unreachable(ends, watch, port, host, timeout_s):
    """One that comes while connect() holds the socket is told and taken off it before the socket is closed."""
    ends[1].filter("input", f"tcp dport {port} reject with icmpx type host-unreachable")
    fails(ends[0], port, timeout_s, host)
    records = [watch.one(role=CLIENT, method=method) for method in (KERNEL, TC)]
    assert ["unreachable"] * 2 == [outcome(record) for record in records]
    assert {4 if "." in host else 6} == {int(record["flow"]["family"]) for record in records}


def test_an_address_that_nobody_has_is_unreachable_for_the_kernel(ends, watch, port):
    """The ICMP error is the host's own: it does not pass the interface."""
    ends[0].sysctl(f"net.ipv4.neigh.{INTERFACE}.retrans_time_ms", 50)
    fails(ends[0], port, host="10.99.0.77")
    assert "unreachable" == outcome(watch.one(role=CLIENT, method=KERNEL))


def test_silence_times_out(ends, watch, port):
    client, server = ends
    server.filter("input", f"tcp dport {port} drop")
    with at_packets(client, port, timeout_ns=1) as near, at_packets(server, port, timeout_ns=1) as far:
        with a_socket(client, "10.99.0.2", None) as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 500)
            with pytest.raises(TimeoutError):
                made.connect(("10.99.0.2", port))
        kernel = watch.one(role=CLIENT, method=KERNEL)
        for programs in (near, far):
            programs.flush()
        tc = [programs.drain()[0] for programs in (near, far)]
        assert ["timeout"] * 3 == [outcome(record) for record in (kernel, *tc)]
        assert [CLIENT, SERVER] == [record["flow"]["role"] for record in tc]
        assert kernel["n_syn"] == tc[0]["n_syn"] >= 1
        assert kernel["connect_ns"] > 500 * MS
        assert [0, 0] == [size(programs) for programs in (near, far)]


def test_an_application_that_gives_up_aborts(ends, watch, port):
    ends[1].filter("input", f"tcp dport {port} drop")
    fails(ends[0], port, timeout_s=0.1)
    assert "aborted" == outcome(watch.one(role=CLIENT, method=KERNEL))


def test_two_ends_that_dial_each_other_open_simultaneously(ends, watch, port):
    addresses = ("10.99.0.1", "10.99.0.2")
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(a_socket(end, at, 0)) for end, at in zip(ends, addresses, strict=True)]
        for namespace in ends:  # both have sent one before either comes
            namespace.filter("input", f"tcp dport {port} {IS_SYN} {ONCE} drop")
        for one, address in zip(made, addresses, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((address, port))
        began_ns = time.monotonic_ns()
        for one, address in zip(made, reversed(addresses), strict=True):
            with contextlib.suppress(BlockingIOError):
                one.connect((address, port))
        wait_until(lambda: len(watch) >= 4, "both ends, by both methods")
        answered_ns = time.monotonic_ns() - began_ns - RESENT_NS
    records = watch.records()
    assert {CLIENT} == set(records["flow"]["role"])
    by_end = [sorted(map(outcome, records[records["flow"]["netns_ino"] == end.inode])) for end in ends]
    # an end whose own second SYN is later sees the other's first; that one may then see nothing but an answer
    assert ["simultaneous"] * 2 in by_end
    assert [2, 2] == [len(outcomes) for outcomes in by_end]
    assert all(outcomes in (["ok"] * 2, ["simultaneous"] * 2) for outcomes in by_end), "both methods agree"
    assert (records["rtt_ns"] < answered_ns).all()


def test_no_port_left_is_no_timeout(ends, watch, port):
    """No SYN is sent, and nobody is to blame but the host."""
    client, server = ends
    client.sysctl("net.ipv4.ip_local_port_range", "40000 40001")
    try:
        with listen(server, port), dial(client, port), dial(client, port):
            fails(client, port)
            wait_until(lambda: len(watch.records(role=CLIENT, method=KERNEL)) == 3, "three attempts")
            last = watch.records(role=CLIENT, method=KERNEL)[-1]
            assert ("other", 0, 0) == (outcome(last), last["n_syn"], last["flow"]["local_port"])
    finally:
        client.sysctl("net.ipv4.ip_local_port_range", "32768 60999")
