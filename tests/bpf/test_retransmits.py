"""Retransmits on real sockets: drop rules between two namespaces provoke each reason; the kernel's counters agree."""

import fcntl
import socket
import termios
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.signals.retransmits import reasons, sent
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.vocabulary.records import RetransmitKind, Role
from tests.support.waiting import wait_until
from tests.truth.lossy import counters
from tests.truth.netns import ONCE
from tests.truth.recorder import Recorder, alone, cookie

pytestmark = [pytest.mark.root, pytest.mark.hideable]

SEGMENT, SYNACK = RetransmitKind.SEGMENT, RetransmitKind.SYNACK
EVERY_OTHER = "numgen inc mod 2 == 0"
FIRST_TEN = "numgen inc mod 1000000 < 10"
PIECE = 60_000
DATA = "meta length > 500"


@pytest.fixture(scope="module")
def watch() -> Iterator[Recorder]:
    with alone(RETRANSMITS) as recorder:
        yield recorder


class Grown:
    """Differences of a namespace's counters since `Grown(...)`."""

    def __init__(self, namespace):
        self._namespace = namespace
        self._before = counters(namespace)

    def __getitem__(self, name: str) -> int:
        return counters(self._namespace)[name] - self._before[name]


def segments_by_reason(records) -> Counter[str]:
    found: Counter[str] = Counter()
    for reason, segs in zip(reasons(records).tolist(), records["segs"].tolist(), strict=True):
        if reason:
            found[reason] += segs
    return found


def transfer(client: socket.socket, server: socket.socket, size: int) -> None:
    """Send so many bytes and read them, in pieces that both buffers hold."""
    for left in range(size, 0, -PIECE):
        piece = min(left, PIECE)
        client.sendall(bytes(piece))
        assert len(server.recv(piece, socket.MSG_WAITALL)) == piece


def unacknowledged(end: socket.socket) -> int:
    """Bytes that the peer's TCP has not acknowledged."""
    return int.from_bytes(fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)), "little")


@pytest.mark.usefixtures("needs_storage")
def test_a_lost_syn_is_sent_again_by_syn(lossy, watch, port):
    lossy.server.filter("input", f"tcp dport {port} tcp flags syn {EVERY_OTHER} drop")
    clients = []
    for _ in range(3):
        grown = Grown(lossy.client)
        clients += [client for client, _ in lossy.connect(port)]
        assert (grown["TCPSynRetrans"], grown["RetransSegs"], grown["TCPTimeouts"]) == (1, 1, 1)
    # a kernel that runs no program over threads of its process 1 may tell nobody of one (docs/design/kernel.md)
    wait_until(lambda: sum(len(watch.records(client)) for client in clients) >= 2, "records of two of the three")

    for client in clients:
        for record in watch.records(client):
            assert (record["kind"], record["nth"], record["tcp_state"]) == (SEGMENT, 1, 2)
            assert (record["flow"]["role"], record["flow"]["peer_port"]) == (Role.CLIENT, port)
            assert record["flow"]["local_port"] == client.getsockname()[1]
        assert {"syn": 1} == segments_by_reason(watch.records(client)) or not len(watch.records(client))


def test_a_lost_syn_ack_is_sent_again_by_synack_of_the_socket_that_is_to_come(lossy, watch, port):
    lossy.client.filter("input", f"tcp sport {port} {ONCE} drop")
    grown = Grown(lossy.server)
    ((client, server),) = lossy.connect(port)
    records = watch.records(lossy.server, kind=SYNACK)
    mine = records[records["flow"]["local_port"] == port]

    assert len(mine) >= 1
    assert {"synack": len(mine)} == segments_by_reason(mine)
    assert (len(mine), len(mine)) == (grown["TCPSynRetrans"], grown["RetransSegs"])
    assert {cookie(server)} == set(mine["flow"]["sock_cookie"].tolist())
    assert {client.getsockname()[1]} == set(mine["flow"]["peer_port"].tolist())
    assert list(range(1, len(mine) + 1)) == mine["nth"].tolist()
    assert (Role.SERVER, 12) == (mine[0]["flow"]["role"], mine[0]["tcp_state"])


def test_a_lost_tail_is_sent_again_by_tlp(lossy, watch, port):
    ((client, server),) = lossy.connect(port)
    lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
    grown = Grown(lossy.client)
    transfer(client, server, 1000)

    record = watch.one(client, kind=SEGMENT)
    assert {"tlp": 1} == segments_by_reason(watch.records(client))
    assert (grown["TCPLossProbes"], grown["RetransSegs"]) == (1, 1)
    assert (record["len"], record["end_seq"] - record["seq"]) == (1000, 1000)


def test_what_no_probe_saves_is_sent_again_by_rto_and_counted(lossy, watch, port):
    lossy.client.sysctl("net.ipv4.tcp_early_retrans", 0)
    ((client, server),) = lossy.connect(port)
    lossy.server.filter("input", f"tcp dport {port} {DATA} numgen inc mod 1000000 < 3 drop")
    grown = Grown(lossy.client)
    transfer(client, server, 1000)

    records = watch.records(client, kind=SEGMENT)
    assert {"rto": 3} == segments_by_reason(records)
    assert (grown["TCPTimeouts"], grown["RetransSegs"]) == (3, 3)
    assert [1, 2, 3] == records["nth"].tolist()
    assert [1, 2, 3] == records["icsk_retransmits"].tolist()
    waited = np.diff(records["flow"]["boot_ns"].astype(np.int64)) / 1e9
    assert (waited > 0.3).all(), "each timeout is twice the one before, from 0.2 s"


@pytest.mark.usefixtures("needs_storage")
def test_a_hole_is_sent_again_by_fast_and_is_no_mistake(lossy, watch, port):
    ((client, server),) = lossy.connect(port)
    lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
    grown = Grown(lossy.client)
    client.sendall(bytes(10_000))  # at once: what tells of the hole comes before a timer can
    assert len(server.recv(10_000, socket.MSG_WAITALL)) == 10_000
    wait_until(lambda: grown["TCPFastRetrans"] == 1, "a fast retransmit")

    assert {"fast": 1} == segments_by_reason(watch.records(client))
    assert grown["RetransSegs"] == 1
    client.close()
    server.close()
    watch.flush()
    assert not marks(watch, lossy, port), "a recovery that was needed"


def test_a_hole_that_one_ack_tells_of_is_sent_again_by_the_reordering_timer(lossy, watch, port):
    """The reordering window is a part of the round trip time: it has to be longer than two sends take."""
    lossy.client.sysctl("net.ipv4.tcp_min_rtt_wlen", 0)
    lossy.client.sysctl("net.ipv4.tcp_early_retrans", 0)  # no loss probes
    with lossy.client.limited("4mbit"):
        ((client, server),) = lossy.connect(port)
        transfer(client, server, 20_000)
        lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
        grown = Grown(lossy.client)
        transfer(client, server, 2 * 1448)

        assert {"rack_reo": 1} == segments_by_reason(watch.records(client))
        assert (grown["TCPFastRetrans"], grown["RetransSegs"]) == (1, 1)


def test_after_a_timeout_the_rest_is_sent_again_by_slow_start(lossy, watch, port):
    lossy.client.sysctl("net.ipv4.tcp_early_retrans", 0)
    ((client, server),) = lossy.connect(port)
    lossy.server.filter("input", f"tcp dport {port} {DATA} {FIRST_TEN} drop")
    grown = Grown(lossy.client)
    client.sendall(bytes(10_000))  # at once: what tells of the hole comes before a timer can
    assert len(server.recv(10_000, socket.MSG_WAITALL)) == 10_000

    found = segments_by_reason(watch.records(client))
    assert found.keys() == {"rto", "slow_start"}
    assert (found["rto"], found["slow_start"]) == (grown["TCPTimeouts"], grown["TCPSlowStartRetrans"])
    assert found.total() == grown["RetransSegs"]


def test_an_attempt_that_the_host_itself_refuses_is_failed_and_no_retransmit(lossy, watch, port):
    ((client, server),) = lossy.connect(port)
    lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
    lossy.client.filter("output", f"tcp dport {port} {DATA} numgen inc mod 1000000 > 0 drop")
    grown = Grown(lossy.client)
    client.sendall(bytes(1000))
    watch.until(lambda evidence: "failed" in reasons(evidence.rec), "a failed attempt", client)
    lossy.client.unfilter()
    assert len(server.recv(1000, socket.MSG_WAITALL)) == 1000

    records = watch.records(client, kind=SEGMENT)
    failed = records["err"] != 0
    assert {-1} == set(records["err"][failed].tolist()), "EPERM, by the rule"
    assert failed.sum() == grown["TCPRetransFail"]
    assert records["segs"][sent(records)].sum() == grown["RetransSegs"] - failed.sum()
    assert {0} == set(records["nth"][failed].tolist())


def marks(watch, lossy, port) -> dict[str, int]:
    """Segments of the port's connections that were found to be sent again in vain, by how."""
    records = watch.records(lossy.client, peer_port=port)
    undone = records["segs"][records["kind"] == RetransmitKind.UNDO]
    found = {"undo": int(undone.sum()), "dsack": int(records["new_duplicates"].sum())}
    return {how: n for how, n in found.items() if n}


@pytest.mark.parametrize("seen", ["by the iterator", "at close", "at the next retransmit"])
def test_a_segment_that_came_twice_is_marked_by_dsack(lossy, watch, port, seen):
    ((client, server),) = lossy.connect(port)
    lossy.client.filter("input", f"tcp sport {port} {ONCE} drop")  # the ACK
    grown = Grown(lossy.client)
    client.sendall(bytes(1000))
    wait_until(lambda: grown["TCPDSACKRecv"] == 1, "the peer has reported a duplicate")

    if seen == "by the iterator":
        watch.flush()
    elif seen == "at close":
        client.close()
        server.close()
        wait_until(lambda: marks(watch, lossy, port), "the end of the connection")
    else:
        lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
        client.sendall(bytes(1000))
        wait_until(lambda: grown["RetransSegs"] == 2, "another retransmit")
    assert {"dsack": 1} == marks(watch, lossy, port)
    assert (watch.records(peer_port=port)["flow"]["local_port"] > 0).all(), "a closed socket has lost its port"


def test_a_timeout_that_was_too_early_is_marked_by_undo_and_not_again_by_dsack(lossy, watch, port):
    """The ACK is not lost but late: it waits behind other bytes for the rate limit."""
    lossy.client.sysctl("net.ipv4.tcp_early_retrans", 0)
    ((client, server),) = lossy.connect(port)
    client.sendall(bytes(100))
    server.recv(100)
    grown = Grown(lossy.client)
    with lossy.server.limited("8kbit"):
        with lossy.server.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as filler:
            for size in (1400, 300, 100):
                filler.sendto(bytes(size), ("10.99.0.1", 9))
        client.sendall(bytes(1000))
        wait_until(lambda: grown["TCPSpuriousRTOs"] + grown["TCPLossUndo"] + grown["TCPFullUndo"] > 0, "an undo")
        assert {"undo": 1} == marks(watch, lossy, port)
        wait_until(lambda: grown["TCPDSACKRecv"] == 1, "the peer's DSACK of the same segment")
    watch.flush()
    client.close()
    server.close()
    assert {"undo": 1} == marks(watch, lossy, port)


@pytest.mark.parametrize("form", ["IPv4", "IPv6", "mapped"])
def test_addresses_have_one_form_whatever_the_socket(lossy, watch, port, form):
    host, listen = {"IPv4": ("10.99.0.2", ""), "IPv6": ("fd99::2", ""), "mapped": ("::ffff:10.99.0.2", "::")}[form]
    ((client, server),) = lossy.connect(port, host, listen)
    lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
    transfer(client, server, 1000)

    record = watch.one(client, kind=SEGMENT)
    flow = record["flow"]
    family, address = (6, "fd99::1") if form == "IPv6" else (4, "::ffff:10.99.0.1")
    assert (family, socket.inet_pton(socket.AF_INET6, address)) == (flow["family"], bytes(flow["local_addr"]))
    assert (client.getsockname()[1], port) == (flow["local_port"], flow["peer_port"])
    assert lossy.client.inode == flow["netns_ino"]


@pytest.mark.usefixtures("needs_storage")
def test_what_the_ring_refuses_is_counted_and_nobody_reads(lossy, port):
    with alone(RETRANSMITS, Filter(port=port), ring_bytes=4096, background=False) as small:
        ((client, server),) = lossy.connect(port)
        grown = Grown(lossy.client)
        transfer(client, server, 200_000)  # its window is wide enough then for 40 at once
        lossy.server.filter("input", f"tcp dport {port} {DATA} numgen inc mod 1000000 < 40 drop")
        transfer(client, server, 60_000)
        wait_until(lambda: not unacknowledged(client), "nothing is to be sent again any more")
        counts = small.counted()
        lost, read = small.lost()["ring_full"], small.records(client, kind=SEGMENT)
        assert 0 < lost == counts["lost_records"]
        assert grown["RetransSegs"] == counts["segs_retrans"] == read["segs"].sum() + counts["segs_unrecorded"]

        lossy.server.unfilter()
        lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
        transfer(client, server, 1000)
        last, counts = small.records(client)[-1], small.counted()
        assert small.lost()["ring_full"] == lost
        assert grown["RetransSegs"] == counts["segs_retrans"] == last["total_retrans"]
        assert counts["bytes_retrans"] == last["bytes_retrans"]
