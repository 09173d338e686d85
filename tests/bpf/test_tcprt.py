"""TCP-RT on real sockets between two network namespaces: docs/design/evidence.md, "TCP-RT"."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from latencyprobe_agent.tools.tcprt import v6
from latencyprobe_agent.tools.tcprt.ports import Ports
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import repair
from tests.truth.following import CLIENT, PORT, SERVER, SERVER_IPV6, connected, made, receive, rpc
from tests.truth.netns import Namespace
from tests.truth.peers import disconnect

pytestmark = [pytest.mark.root, pytest.mark.hideable]


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


@pytest.mark.usefixtures("needs_storage")
def test_the_end_of_each_connection_of_a_socket_that_connects_again_is_told(follow, hosts):
    followed = follow()
    with closing(made(hosts[1])) as listener, closing(made(hosts[0])) as client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", PORT))
        listener.listen()
        for calls in (2, 1):
            client.connect((SERVER, PORT))
            with closing(listener.accept()[0]) as server:
                for _ in range(calls):
                    rpc(client, server)
                disconnect(client)
    first, second, end, third, last = followed.until("peer", "PPEPE")
    assert [(task.sent_bytes, task.received_bytes) for task in (first, second, third)] == [(100, 1000)] * 3
    assert [(one.sent_bytes, one.received_bytes) for one in (end, last)] == [(200, 2000), (100, 1000)]
