"""What only a guest can show: its wall clock may be set, and its kernel has TLS and SMC. tests/kernels runs it."""

import ctypes
import os
import socket
import struct
import threading
import time

import pytest

from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.join import CLIENT, SERVER, match, outside_calls, with_cookies_of_log
from tests.truth.peers import Peers
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
STEPS_S = (3600, -3600, 5, -5)
TCP_ULP = 31  # linux/tcp.h
AF_SMC = 43  # linux/socket.h


def test_steps_of_the_wall_clock_touch_no_stamp(session, tmp_path):
    clock, told_s, ended = Clock(), [], threading.Event()

    def set_clock() -> None:
        while not ended.wait(0.1):
            seconds = STEPS_S[len(told_s) % len(STEPS_S)]
            time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + seconds * 10**9)
            told_s.append(clock.resample() / 1e9)

    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    setter = threading.Thread(target=set_clock)
    setter.start()
    try:
        truth = workload.run_both(
            tmp_path / "log", address=f"127.0.0.1:{PORT}", total=200, seed=17, threads=1, rpcs=20, rate=100
        )
    finally:
        ended.set()
        setter.join()
    records = session.records(2 * len(truth))
    if not session.kernel_cookies:
        records = with_cookies_of_log(truth, records)
    matched = match(truth, records)
    missed = session.programs.lost()["recursion"]
    print(f"{len(told_s)} steps, {matched.describe()}")
    assert [len(matched.missing(role)) for role in (CLIENT, SERVER)] == [0, 0]
    assert max(outside_calls(truth, records, matched).values()) <= missed, "by the boot clock of the generator"
    halves, pairs = session.pairs(records)
    assert len(pairs) == len(truth)
    assert halves.duration_ns.max() < 5e9
    assert len(told_s) >= len(STEPS_S)
    expected_s = [STEPS_S[i % len(STEPS_S)] for i in range(len(told_s))]
    assert all(abs(told - expected) < 1 for told, expected in zip(told_s, expected_s, strict=True))


def test_kernel_tls_says_unsupported_once_and_is_left_alone(session):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    peers = Peers(PORT)
    peers.turn()
    peers.turn()
    try:
        peers.server.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
    except FileNotFoundError as error:
        peers.close()
        pytest.xfail(f"this kernel has no TLS: {error}")
    for _ in range(3):
        peers.turn()
    peers.close()
    wait_until(lambda: len(session.records()) == 7, "the client's five turns, the server's first and its end")
    records = session.records()
    assert (records["excluded"][records["role"] == Role.CLIENT] == Excluded.NONE).all()
    of_server = records["excluded"][records["role"] == Role.SERVER]
    assert sorted(of_server.tolist()) == [Excluded.NONE, Excluded.UNSUPPORTED]


def test_smc_says_unsupported(session):
    """Without a device for it, its sockets negotiate over TCP and stay there: no exchange of theirs is an event."""
    try:
        listener, client = (socket.socket(AF_SMC, socket.SOCK_STREAM) for _ in range(2))
    except OSError as error:
        pytest.xfail(f"this kernel has no SMC: {error}")
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    with listener, client:
        address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", PORT) + socket.inet_aton("127.0.0.1") + bytes(8)
        c = ctypes.CDLL(None)  # Python knows no addresses of this family
        assert c.bind(listener.fileno(), address, len(address)) == 0
        listener.listen()
        assert c.connect(client.fileno(), address, len(address)) == 0
        server = c.accept(listener.fileno(), None, None)
        client.sendall(b"request")
        assert os.read(server, 100) == b"request"
        os.close(server)
    records = session.records(2)
    print(f"SMC: excluded {records['excluded'].tolist()}, roles {records['role'].tolist()}")
    assert (records["excluded"] == Excluded.UNSUPPORTED).all()
