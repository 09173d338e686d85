"""Every way that bytes take into and out of the kernel, one connection each.

paths.c takes turns by the named calls and stamps its clock around each message: every turn must be one exchange of the
right size on both sides, and each stamp must lie inside the calls that it tells of.
"""

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome, Role
from tests.support.ports import free_port
from tests.truth import workload
from tests.truth.handshaking import IS_ACK
from tests.truth.netns import ONCE, Namespace
from tests.truth.sides import of_role
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
MIB = 1 << 20
KERNEL_REFUSES = 77  # exit code of paths.c
STAMPS = ("sent_from", "sent_to", "read_from", "read_to")


def run_paths(
    send: str,
    receive: str,
    *flags: str,
    host: str = "127.0.0.1",
    turns: int,
    request: int,
    response: int,
    prefix: Sequence[str] = (),
):
    """Stamps int64[2 (client, server), turns, 4 (STAMPS)]. `prefix`: a command that runs it in a namespace."""
    sizes = map(str, (turns, request, response))
    words = [*prefix, workload.build("paths"), send, receive, host, str(PORT), *sizes, *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != KERNEL_REFUSES, f"this kernel refuses io_uring: {done.stderr}"
    assert done.returncode == 0, done.stderr
    lines = np.array([line.split() for line in done.stdout.splitlines()], np.int64)
    return np.stack([lines[lines[:, 0] == role][:, 2:] for role in (Role.CLIENT, Role.SERVER)])


def assert_each_turn_is_one_pair(session, stamps, request: int, response: int, unseen_reads: bool = False):
    """Returns the records. `unseen_reads`: no receive call tells of them (flag READ_APPROX)."""
    turns = stamps.shape[1]
    records = session.records_of_closed(2)
    assert len(records) == 2 * turns
    for log, role in zip(stamps, (Role.CLIENT, Role.SERVER), strict=True):
        mine = of_role(records, role)
        assert (mine["excluded"] == Excluded.NONE).all()
        assert (mine["outcome"] == Outcome.OK).all()
        assert (mine["request_bytes"] == request).all()
        assert (mine["response_bytes"] == response).all()
        assert mine["request_offset"].tolist() == [request * turn for turn in range(turns)]
        assert mine["response_offset"].tolist() == [response * turn for turn in range(turns)]
        sent_from, sent_to, read_from, read_to = log.T
        for stamp in ("send_start_ns", "send_end_ns"):
            assert (sent_from <= mine[stamp]).all(), stamp
            assert (mine[stamp] <= sent_to).all(), stamp
        seen = mine["flags"] & ExchangeFlags.READ_APPROX == 0
        if unseen_reads:
            assert not seen.any()
        else:
            assert seen.all()
            assert (mine["flags"] & ExchangeFlags.SEND_APPROX == 0).all()
            assert (read_from <= mine["read_last_ns"]).all()
            assert (mine["read_last_ns"] <= read_to).all()
    assert len(session.pairs(records)[1]) == turns
    return records


@pytest.mark.parametrize(
    "send", ["write", "send", "writev", "sendmsg", "sendmmsg", "zerocopy", "io_uring", "io_uring_zerocopy"]
)
def test_every_send_call_is_stamped_inside_itself(session, send):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    stamps = run_paths(send, "recv", turns=20, request=5_000, response=70_000)
    records = assert_each_turn_is_one_pair(session, stamps, 5_000, 70_000)
    print(f"{send}: 20 turns, send calls {np.unique(records['send_calls']).tolist()}")


@pytest.mark.parametrize(
    "receive", ["read", "recv", "readv", "recvmsg", "recvmmsg", "waitall", "peek", "pieces", "trunc", "io_uring"]
)
def test_every_receive_call_is_stamped_inside_itself(session, receive):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    stamps = run_paths("send", receive, turns=20, request=100, response=2_000)
    records = assert_each_turn_is_one_pair(session, stamps, 100, 2_000)
    client = of_role(records, Role.CLIENT)
    print(f"{receive}: 20 turns, receive calls of the client {np.unique(client['recv_calls']).tolist()}")
    if receive == "pieces":
        assert (client["recv_calls"] == 286).all(), "2,000 bytes in pieces of 7"
        assert (client["read_first_ns"] < client["read_last_ns"]).all()


def test_zero_copy_receive_has_no_stamp_rather_than_a_late_one(session):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    stamps = run_paths("send", "zerocopy", turns=20, request=100, response=2_000)
    records = assert_each_turn_is_one_pair(session, stamps, 100, 2_000, unseen_reads=True)
    assert (of_role(records, Role.CLIENT)["read_last_ns"] == 0).all()
    server = of_role(records, Role.SERVER)
    assert (server["read_last_ns"] == server["send_start_ns"]).all()


@pytest.mark.parametrize("host", ["::1", "::ffff:127.0.0.1"])
def test_ipv6_and_mapped_addresses_take_the_same_ways(session, host):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    stamps = run_paths("sendmsg", "recvmsg", host=host, turns=20, request=100, response=2_000)
    records = assert_each_turn_is_one_pair(session, stamps, 100, 2_000)
    mapped = bytes(10) + b"\xff\xff\x7f\x00\x00\x01"
    expected = socket.inet_pton(socket.AF_INET6, "::1") if host == "::1" else mapped
    assert {bytes(address) for address in records["peer_addr"]} == {expected}


@pytest.mark.parametrize(("request_bytes", "response_bytes"), [(1, 1), (1, 100 * MIB), (100 * MIB, 1)])
def test_messages_of_one_byte_to_100_mib(session, request_bytes, response_bytes):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    stamps = run_paths("write", "read", turns=3, request=request_bytes, response=response_bytes)
    records = assert_each_turn_is_one_pair(session, stamps, request_bytes, response_bytes)
    large = max(request_bytes, response_bytes) > MIB
    assert (records["conn_class"] == ExchangeClass.STREAM).all() == large


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A network namespace with nothing but loopback."""
    one = Namespace(f"lp-{os.getpid()}-paths")
    try:
        yield one
    finally:
        one.delete()


NO_COOKIE = 0x607  # bits of net.ipv4.tcp_fastopen: both ends, data without a cookie
CLIENT_ONLY = 0x1


@pytest.mark.parametrize(
    ("setting", "dropped", "excluded"),
    [
        (NO_COOKIE, None, Excluded.TFO),
        # the server is then still in SYN_RECV when it answers
        (NO_COOKIE, f"tcp dport {PORT} {IS_ACK} {ONCE}", Excluded.TFO),
        (CLIENT_ONLY, None, Excluded.NONE),
    ],
    ids=["accepted without a cookie", "answered before the handshake is over", "refused by the server"],
)
def test_a_request_in_the_syn_is_excluded_and_the_next_ones_are_not(session, namespace, setting, dropped, excluded):
    namespace.sysctl("net.ipv4.tcp_fastopen", setting)
    if dropped:
        namespace.filter("input", f"{dropped} drop")
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    prefix = ("ip", "netns", "exec", namespace.name)
    run_paths("send", "recv", "fastopen", turns=10, request=100, response=1_000, prefix=prefix)
    records = session.records_of_closed(2)
    assert len(records) == 20
    for role in (Role.CLIENT, Role.SERVER):
        mine = np.sort(records[records["role"] == role], order="response_offset")
        assert mine["excluded"].tolist() == [excluded] + 9 * [Excluded.NONE]
        assert mine["response_offset"].tolist() == [1_000 * turn for turn in range(10)]
        assert mine["response_bytes"].tolist() == 10 * [1_000]
        assert mine["request_bytes"][1:].tolist() == 9 * [100]
    assert len(session.pairs(records)[1]) == (9 if excluded else 10)
