"""TCP-RT on real sockets between two network namespaces: docs/design/evidence.md, "TCP-RT"."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.signals.table import TASKS
from latencyprobe_agent.tools.tcprt import v6
from latencyprobe_agent.tools.tcprt.decoded import decoded
from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.ports import Ports
from latencyprobe_agent.vocabulary.records import Role, TcprtKind, TcprtSide
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import netns, repair
from tests.truth.netns import Namespace
from tests.truth.recorder import Recorder, alone

pytestmark = pytest.mark.root

LATENCYPROBE = Path(sys.executable).with_name("latencyprobe")
PORT = free_port()
CLIENT, SERVER, SERVER_IPV6 = "10.99.0.1", "10.99.0.2", "fd99::2"


class Followed:
    """What a recorder of tasks has, as the tool prints it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._clock = Clock()
        self.records: list[Record] = []

    def take(self) -> list[Record]:
        """All records so far."""
        self.records += decoded(self.recorder.records()[len(self.records) :], self._clock.offset_ns)
        return self.records

    def kinds(self, side: str) -> str:
        """The records so far of one side, such as RRE."""
        return "".join(record.kind for record in self.take() if record.connection.side == side)

    def until(self, side: str, kinds: str) -> list[Record]:
        """Records of one side, once they are of these kinds, in this order."""
        wait_until(lambda: self.kinds(side) == kinds, f"{kinds}, not {self.kinds(side)}")
        return [record for record in self.records if record.connection.side == side]


@pytest.fixture
def follow() -> Iterator[Callable[..., Followed]]:
    """Follow one port, both sides of it, or others; with another ring perhaps, or options of `recorder.alone()`."""
    with ExitStack() as stack:

        def make(ports: Ports | None = None, ring: str = TASKS.ring, **options: object) -> Followed:
            bits = (ports or Ports(local=(PORT,), peer=(PORT,))).words()
            words = {np.uint32(word).tobytes(): np.uint64(value).tobytes() for word, value in bits.items()}
            recorded = alone(replace(TASKS, ring=ring), entries={"tcprt_ports": words}, **options)
            return Followed(stack.enter_context(recorded))

        yield make


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Namespace, Namespace]]:
    """(client, server)."""
    with netns.joined() as ends:
        yield ends


def made(
    host: Namespace, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0
) -> socket.socket:
    """A socket of a host, that gives up after 10 s."""
    with host.inside():
        end = socket.socket(family, kind, protocol)
    end.settimeout(10)
    return end


@contextmanager
def connected(hosts: tuple[Namespace, Namespace], how: str = "ipv4") -> Iterator[tuple[socket.socket, socket.socket]]:
    """(client, server): a connection over the veth. `mapped`: an IPv4 client, an IPv6 server socket."""
    family = socket.AF_INET if how == "ipv4" else socket.AF_INET6
    with closing(made(hosts[1], family)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", PORT))
        listener.listen()
        with closing(made(hosts[0], socket.AF_INET6 if how == "ipv6" else socket.AF_INET)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.connect((SERVER_IPV6 if how == "ipv6" else SERVER, PORT))
            accepted, _ = listener.accept()
            with closing(accepted) as server:
                server.settimeout(10)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield client, server


@contextmanager
def dropping(host: Namespace, rule: str) -> Iterator[None]:
    """Drop what arrives at a host and matches."""
    host.filter("input", f"{rule} drop")
    try:
        yield
    finally:
        host.unfilter()


def retransmitted(host: Namespace) -> int:
    """Segments that a host has sent again, of nstat."""
    return int(host.run("nstat", "-asz", "TcpRetransSegs").split()[-2])


def receive(end: socket.socket, size: int) -> None:
    while size:
        size -= len(end.recv(size))


def rpc(client: socket.socket, server: socket.socket, request: int = 100, response: int = 1000) -> None:
    client.sendall(bytes(request))
    receive(server, request)
    server.sendall(bytes(response))
    receive(client, response)


def reset_on_close(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def boot_us() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1000


@pytest.mark.parametrize("how", ["ipv4", "ipv6", "mapped"])
def test_two_segments_each_way_agree_with_the_applications_log(follow, hosts, how):
    """Between the application's readings of the clock around a segment, TCP has seen it; it tells whole us."""
    followed, log = follow(), []
    with connected(hosts, how) as (client, server):
        for _ in range(20):
            first = [boot_us()]
            client.sendall(bytes(1448))
            wait_until(lambda: len(server.recv(1448, socket.MSG_PEEK)) == 1448, "the first segment")
            first.append(boot_us())
            time.sleep(0.005)
            last = [boot_us()]
            client.sendall(bytes(152))
            receive(server, 1600)
            last.append(boot_us())
            time.sleep(0.003)
            answer = [boot_us()]
            server.sendall(bytes(1448))
            answer.append(boot_us())
            server.sendall(bytes(1448))
            receive(client, 2896)
            log.append((first, last, answer))
        assert followed.kinds("local") == "R" * 19, "the last response waits for the next request or the close"
    tasks = [record for record in followed.until("local", "R" * 20 + "E") if record.kind == "R"]
    for task, (first, last, answer) in zip(tasks, log, strict=True):
        assert last[0] - first[1] - 1 < task.recv_us < last[1] - first[0]
        assert answer[0] - last[1] - 1 < task.server_us < answer[1] - last[0]
    assert {(1600, 2896, False)} == {(t.received_bytes, t.sent_bytes, t.reorder) for t in tasks}
    address = SERVER_IPV6 if how == "ipv6" else SERVER
    assert {(address, PORT)} == {(str(t.connection.local.address), t.connection.local.port) for t in tasks}


def test_r_appears_only_with_the_next_request(follow, hosts):
    followed = follow()
    with connected(hosts) as (client, server):
        rpc(client, server)
        time.sleep(0.1)
        assert (followed.kinds("local"), followed.kinds("peer")) == ("", "")
        client.sendall(b"x")
        followed.until("local", "R")
        followed.until("peer", "P")


def test_a_client_that_dies_in_its_request_leaves_n_and_e(follow, hosts):
    followed = follow()
    with connected(hosts) as (client, server):
        client.sendall(bytes(70))
        receive(server, 70)
        client.close()
        assert server.recv(1) == b""
    n, e = followed.until("local", "NE")
    assert (70, 1, 70, 0) == (n.received_bytes, n.task_no, e.received_bytes, e.sent_bytes)
    assert (70, 1) == (n.v6_received_bytes - 1, e.v6_sent_bytes), "V6 counts the FINs"
    assert "E" == followed.until("peer", "E")[0].kind, "an unanswered request leaves no P"


def test_a_close_over_an_unacknowledged_response_leaves_w_and_e(follow, hosts):
    followed = follow()
    with connected(hosts) as (client, server):
        client.sendall(bytes(70))
        receive(server, 70)
        with dropping(hosts[0], f"tcp sport {PORT}"):
            server.sendall(bytes(3000))
            reset_on_close(server)
            server.close()
        w, e = followed.until("local", "WE")
        reset_on_close(client)
    assert (3000, 3000, 70) == (w.sent_bytes, w.unacked_bytes, w.received_bytes)
    assert (3000, 3000, 3000) == (e.sent_bytes, w.v6_unacked_bytes, w.v6_sent_bytes)


def test_a_connection_without_a_request_prints_nothing(follow, hosts):
    followed = follow()
    with connected(hosts):
        pass
    assert [""] == [v6.line(record) for record in followed.until("local", "E")]
    assert 0 == followed.until("peer", "E")[0].task_no


@pytest.mark.usefixtures("needs_storage")
def test_a_half_closed_request_is_answered_and_no_fin_is_counted(follow, hosts):
    followed = follow()
    with connected(hosts) as (client, server):
        client.sendall(bytes(70))
        client.shutdown(socket.SHUT_WR)
        receive(server, 70)
        assert server.recv(1) == b""
        server.sendall(bytes(500))
        receive(client, 500)
    r, e = followed.until("local", "RE")
    p, asked = followed.until("peer", "PE")
    assert (70, 500, 70, 500) == (r.received_bytes, r.sent_bytes, p.sent_bytes, p.received_bytes)
    assert (500, 70, 70, 500) == (e.sent_bytes, e.received_bytes, asked.sent_bytes, asked.received_bytes)


def test_a_connection_older_than_the_programs_is_partial(follow, hosts):
    with connected(hosts) as (client, server):
        rpc(client, server)
        followed = follow()
        for _ in range(3):
            rpc(client, server)
    tasks = followed.until("local", followed.kinds("local"))
    wait_until(lambda: followed.kinds("local").endswith("E"), "the end")
    tasks = [record for record in followed.take() if record.connection.side == "local"]
    assert all(task.connection.partial for task in tasks)
    assert "RRE" == followed.kinds("local")[-3:]
    assert (4000, 400) == (tasks[-1].sent_bytes, tasks[-1].received_bytes), "the kernel's own count of the connection"


def test_a_task_over_the_wrap_of_sequence_numbers(follow, hosts):
    """TCP_REPAIR makes a connection whose numbers are about to wrap; both ends are told the same."""
    port = free_port()  # its own: a repaired socket's port cannot be used again for a while
    followed = follow(Ports(local=(port,), peer=(port,)))
    start = {"client": (1 << 32) - 1000, "server": (1 << 32) - 5000}
    client, server = repair.connection(
        (made(hosts[0]), (CLIENT, 40_000), start["client"]), (made(hosts[1]), (SERVER, port), start["server"])
    )
    with closing(client), closing(server):
        rpc(client, server, request=3000, response=9000)
        rpc(client, server)
    first, _, end = followed.until("local", "RRE")
    assert (3000, 9000) == (first.received_bytes, first.sent_bytes)
    assert (start["server"], (start["server"] + 9000) % (1 << 32)) == (first.seq, first.end_seq)
    assert (9000, 3000) == (first.v6_sent_bytes, first.v6_received_bytes)
    assert (10_001, 3_101) == (end.v6_sent_bytes, end.v6_received_bytes)
    asked = followed.until("peer", "PPE")[0]
    assert (start["client"], 2000, 3000) == (asked.seq, asked.end_seq, asked.sent_bytes)


def test_the_clients_times_contain_the_servers(follow, hosts):
    followed = follow()
    with connected(hosts) as (client, server):
        echo = threading.Thread(
            target=lambda: [(receive(server, 100), server.sendall(bytes(5000))) for _ in range(300)]
        )
        echo.start()
        for _ in range(300):
            client.sendall(bytes(100))
            receive(client, 5000)
        echo.join()
    served = followed.until("local", "R" * 300 + "E")[:-1]
    asked = followed.until("peer", "P" * 300 + "E")[:-1]
    within = [
        p.server_us >= r.server_us and (p.v6_end_ns - p.start_ns) // 1000 >= r.recv_us + r.server_us
        for r, p in zip(served, asked, strict=True)
    ]
    # a hook that the kernel skipped, because another thread was inside it, leaves its stamp to the next one
    assert within.count(False) <= followed.recorder.lost()["recursion"]


def test_reorder_is_set_only_when_packets_were_swapped(follow, hosts):
    """The second half of a request comes first, from a raw socket; then the connection itself sends all of it."""
    followed = follow()
    with connected(hosts) as (client, server):
        rpc(client, server)
        seq = repair.next_seq(client, repair.SEND_QUEUE)
        ack = repair.next_seq(client, repair.RECV_QUEUE)
        segment = repair.segment(client.getsockname(), client.getpeername(), seq + 100, ack, bytes(50))
        with closing(made(hosts[0], socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)) as raw:
            raw.sendto(segment, (SERVER, 0))
        client.sendall(bytes(100))
        receive(server, 150)
        client.sendall(bytes(50))  # what has come already
        server.sendall(bytes(10))
        receive(client, 10)
        rpc(client, server)
    tasks = followed.until("local", "RRRE")[:-1]
    assert [False, True, False] == [task.reorder for task in tasks]
    assert [100, 150, 100] == [task.received_bytes for task in tasks]
    assert not any(record.reorder for record in followed.until("peer", "PPPE"))


@pytest.mark.usefixtures("needs_storage")
def test_retransmits_are_those_of_nstat(follow, hosts):
    followed = follow()
    before = retransmitted(hosts[1])
    with dropping(hosts[0], f"tcp sport {PORT} tcp flags & (syn | fin | rst) == 0 numgen inc mod 7 == 3"):
        for _ in range(10):
            with connected(hosts) as (client, server):
                for _ in range(5):
                    rpc(client, server, response=20_000)
    after = retransmitted(hosts[1])
    followed.until("local", "RRRRRE" * 10)
    tasks = [record for record in followed.records if record.connection.side == "local" and record.kind == "R"]
    ends = [record for record in followed.records if record.connection.side == "local" and record.kind == "E"]
    print(f"{after - before} retransmits, {sum(t.retransmits for t in tasks)} of them in a task")
    assert after - before == sum(end.retransmits + end.handshake_retransmits for end in ends) > 20
    assert sum(end.retransmits for end in ends) == sum(task.retransmits for task in tasks)


@pytest.mark.parametrize("ring", ["tcprts", "newest"])
def test_twice_the_buffer_with_nobody_reading_loses_exactly_the_rest(follow, hosts, ring):
    size = 64 << 10
    followed = follow(Ports(local=(PORT,)), ring=ring, ring_bytes=size, background=False)
    room = size // 208 if ring == "tcprts" else followed.recorder.programs[0].map(ring).max_entries
    total = 2 * room + 1
    with connected(hosts) as (client, server):
        for _ in range(total):
            rpc(client, server, response=1)
    wait_until(lambda: not_open(hosts[1]), "the end of the socket")
    records = followed.take()
    lost = followed.recorder.lost()["ring_full"]
    numbers = [record.task_no for record in records if record.kind == "R"]
    print(f"{ring}: {len(records)} of {total + 1} records delivered, {lost} lost")
    assert lost > 0
    assert total + 1 == len(records) + lost
    if ring == "tcprts":
        assert list(range(1, len(numbers) + 1)) == numbers
        assert not any(record.kind == "E" for record in records)
    else:
        assert {"E"} == {record.kind for record in records} - {"R"}
        assert total in numbers


def test_an_agent_follows_the_targets_that_ask_for_it(session, hosts, record):
    """Server halves of a target are its local side, client halves its peer side; others have no record."""
    wanting, other = PORT, free_port()
    session.measure(wanting, evidence=("tcprt",))
    recorder = record(TASKS)
    with connected(hosts) as (client, server):
        for _ in range(2):
            rpc(client, server)
    evidence = recorder.until(lambda so_far: (so_far.rec["kind"] == TcprtKind.E).sum() == 2, "both ends")
    exchanges = session.records(4)
    session.measure(other, evidence=("tcprt",))
    with connected(hosts) as (client, server):
        rpc(client, server)
    session.measure(wanting)
    with connected(hosts) as (client, server):
        rpc(client, server)
    session.records(6)
    assert len(evidence) == len(recorder)
    records = evidence.rec
    assert {"RRE", "PPE"} == {
        "".join(TcprtKind(kind).name for kind in records["kind"][records["side"] == side]) for side in TcprtSide
    }
    for role, begin in ((Role.SERVER, "response_seq"), (Role.CLIENT, "request_seq")):
        halves = exchanges[exchanges["role"] == role]
        tasks = evidence.joins & (records["flow"]["role"] == role)
        assert list(halves[begin]) == list(evidence.key["seq"][tasks]), "a task has the bytes of its half"
        assert set(halves["sock_cookie"]) == set(records["flow"]["sock_cookie"][tasks])
        assert {1} == set(records["flow"]["target_set"][tasks])


def test_the_tool_prints_what_the_connections_did(hosts):
    words = ["tcprt", "--lports", str(PORT), "--pports", f"{PORT}-{PORT}", "--buffer", "overwrite", "-o", "json"]
    tool = subprocess.Popen([LATENCYPROBE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "attached" in tool.stderr.readline()
        with connected(hosts, "mapped") as (client, server):
            rpc(client, server)
            rpc(client, server)
        wait_until(lambda: not_open(hosts[1]), "the end of the socket")
        tool.send_signal(signal.SIGINT)
        printed, said = tool.communicate(timeout=10)
    finally:
        tool.kill()
        tool.wait()
    records = [json.loads(line) for line in printed.splitlines()]
    for side, kinds in (("local", "RRE"), ("peer", "PPE")):
        assert kinds == "".join(record["record"] for record in records if record["side"] == side)
    served = next(record for record in records if record["record"] == "R")
    assert (100, 1000, 1, SERVER, PORT, CLIENT, 4) == tuple(
        served[name]
        for name in ("recv_bytes", "sent_bytes", "task_no", "local_addr", "local_port", "peer_addr", "family")
    )
    assert os.getpid() == served["owner_tgid"], "the process that sent"
    assert (0, "lost: none\n") == (tool.returncode, said)


def not_open(host: Namespace) -> bool:
    return not host.run("ss", "-Htan", "exclude", "time-wait", "sport", f"= :{PORT}").strip()
