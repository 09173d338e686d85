"""Retransmits in numbers: every segment of tens of thousands is counted, and a path without loss runs no program."""

import json
import re
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from latencyprobe_agent.signals.retransmits import reasons, sent
from latencyprobe_agent.signals.table import RETRANSMITS
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.lossy import counters, network
from tests.truth.netns import INTERFACE, Namespace
from tests.truth.recorder import alone, beside

pytestmark = pytest.mark.root

DROPS = 10_000
SEGMENTS = 4  # of one packet at most, where they leave together
PACKETS = 1_000_000
RING_BYTES = 1 << 24
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@contextmanager
def flooding(pairs: list[tuple[socket.socket, socket.socket]]) -> Iterator[None]:
    """Send from both ends of every connection as fast as they take it, and read what comes."""
    ended = threading.Event()

    def send(end: socket.socket) -> None:
        while not ended.is_set():
            end.sendall(bytes(65_536))

    def read(end: socket.socket) -> None:
        into = bytearray(1 << 20)
        while end.recv_into(into):
            pass

    ends = [end for pair in pairs for end in pair]
    for end in ends:
        end.settimeout(60)
    senders = [threading.Thread(target=send, args=[end]) for end in ends]
    readers = [threading.Thread(target=read, args=[end]) for end in ends]
    for thread in senders + readers:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in senders:
            thread.join()
        for end in ends:
            end.shutdown(socket.SHUT_WR)
        for thread in readers:
            thread.join()


def dropped(*namespaces: Namespace) -> int:
    """Packets that the rules with a counter have dropped so far."""
    rules = "".join(namespace.run("nft", "list", "ruleset") for namespace in namespaces)
    return sum(map(int, re.findall(r"counter packets (\d+)", rules)))


def carried(namespace: Namespace) -> int:
    """Packets that its end of the pair has sent and received so far."""
    (link,) = json.loads(namespace.run("ip", "-s", "-j", "link", "show", INTERFACE))
    return sum(link["stats64"][way]["packets"] for way in ("rx", "tx"))


def test_segments_sent_again_over_ten_thousand_drops_are_what_the_kernel_counts(session, port):
    """As an agent counts: a tool does not know a socket before it sees it send something again."""
    session.measure(port, evidence=("retransmits",))
    with network() as lossy, beside(session.programs, RETRANSMITS, ring_bytes=RING_BYTES) as watch:
        for namespace in (lossy.client, lossy.server):
            namespace.run("ip", "link", "set", INTERFACE, "gso_max_segs", str(SEGMENTS))
            namespace.sysctl("net.ipv4.tcp_rto_min_us", 5_000)
        pairs = lossy.connect(port, count=12)
        before = {end: counters(end) for end in (lossy.client, lossy.server)}
        for namespace in (lossy.client, lossy.server):
            namespace.filter("input", "numgen random mod 12 == 0 counter drop")
        with flooding(pairs):
            wait_until(lambda: dropped(lossy.client, lossy.server) >= DROPS, "drops", timeout_s=60)
            drops = dropped(lossy.client, lossy.server)
            for namespace in (lossy.client, lossy.server):
                namespace.unfilter()
        for client, server in pairs:
            client.close()
            server.close()
        for end in before:  # till then a FIN may be sent again
            wait_until(lambda end=end: not end.run("ss", "-Htan", "exclude", "time-wait"), "all sockets are gone")
        records = {end: watch.records(end) for end in before}
        lost, counts = watch.lost(), watch.counted()
        grown = {end: counters(end) - before[end] for end in before}
    print(f"{drops} drops, lost: {lost}")
    of_kernel, unrecorded = Counter[Namespace](), 0
    for end, mine in records.items():
        by_reason: Counter[str] = Counter()
        for reason, segs in zip(reasons(mine).tolist(), mine["segs"].tolist(), strict=True):
            by_reason[reason] += segs
        names = ("RetransSegs", "TCPRetransFail", "TCPTimeouts", "TCPFastRetrans", "TCPLossProbes")
        told = {name: grown[end][name] for name in (*names, "TCPSlowStartRetrans", "TCPDSACKRecv", "TCPLossUndo")}
        print(f"{end.name}: {len(mine)} records, {dict(by_reason)}; kernel: {told}")
        of_kernel[end] = grown[end]["RetransSegs"] - grown[end]["TCPRetransFail"]
        missing = of_kernel[end] - int(mine["segs"][sent(mine)].sum())
        unrecorded += missing
        assert 0 <= missing <= of_kernel[end] / 100, "what a skipped program did not record, the next one counts"
        assert by_reason["fast"] + by_reason["rack_reo"] + missing >= grown[end]["TCPFastRetrans"]
        assert by_reason["slow_start"] + missing >= grown[end]["TCPSlowStartRetrans"]
        assert mine["segs"].max() >= SEGMENTS, "one record can be several segments"
    assert (of_kernel.total(), unrecorded) == (counts["segs_retrans"], counts["segs_unrecorded"])
    assert not sum(lost.values()) - lost["recursion"]


def runs() -> Counter[str]:
    """Runs of each program that this process holds, by event."""
    names = {p["id"]: p["name"].split("__")[0] for p in json.loads(_bpftool("prog", "show"))}
    found: Counter[str] = Counter()
    for path in Path("/proc/self/fdinfo").iterdir():
        try:
            text = path.read_text()
        except OSError:  # the descriptor that reads this folder
            continue
        if counted := re.search(r"^run_cnt:\t(\d+)$", text, re.MULTILINE):
            found[names[int(re.search(r"^prog_id:\t(\d+)$", text, re.MULTILINE)[1])]] += int(counted[1])
    return found


def _bpftool(*words: str) -> bytes:
    return subprocess.check_output(["bpftool", "-j", *words])


@pytest.fixture
def statistics() -> Iterator[None]:
    """The kernel counts how often programs run."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    yield
    STATISTICS.write_text(before)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("statistics")
def test_a_million_packets_without_loss_run_no_program():
    port = free_port()
    with network() as calm, alone(RETRANSMITS, ring_bytes=RING_BYTES):
        for namespace in (calm.client, calm.server):
            namespace.sysctl("net.ipv4.tcp_early_retrans", 0)  # a machine that stalls is no loss
            namespace.sysctl("net.ipv4.tcp_rto_min_us", 5_000_000)
            namespace.sysctl("net.ipv4.tcp_wmem", "4096 65536 65536")  # all of it fits into the queue
        pairs = calm.connect(port, count=4)
        retransmitted, quiet = 0, 0

        def a_million_carried_without_a_run() -> bool:
            """Add the packets of a short while, unless a program ran in it: what the rest of this machine sends again
            runs them too."""
            nonlocal quiet, retransmitted
            before, start, resent = runs(), carried(calm.client), counters(calm.client)["RetransSegs"]
            wait_until(lambda: carried(calm.client) - start >= PACKETS // 200, "packets", timeout_s=60)
            packets, resent = carried(calm.client) - start, counters(calm.client)["RetransSegs"] - resent
            more = runs() - before
            if not more["retransmit"] + more["synack"] + more["loss_probe"]:
                quiet += packets
                retransmitted += resent
            return quiet >= PACKETS

        with flooding(pairs):
            wait_until(
                a_million_carried_without_a_run, "packets while no program ran", timeout_s=600, seen=lambda: quiet
            )
        assert not retransmitted


@pytest.mark.usefixtures("statistics")
def test_a_new_connection_runs_the_congestion_program_once_at_most():
    with network() as calm, alone(RETRANSMITS):
        port = free_port()

        def runs_for_ten() -> int:
            before = runs()
            calm.connect(port, count=10)
            return (runs() - before)["cong_state"]

        # what other programs of this machine connect meanwhile counts too; some moment is without
        wait_until(lambda: runs_for_ten() <= 10, "a run at most for each connection", timeout_s=60)
