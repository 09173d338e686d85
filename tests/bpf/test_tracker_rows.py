"""The other rows of the tracker table: wake-ups, time to the first byte, packets; beside the log of who did it."""

import os
import socket
import subprocess
import threading
import time

import pytest

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.signals.trackers import NET, TRACKERS, TTFB, WAKEUP
from tests.support.waiting import wait_until
from tests.truth.tracking import MS, blocked, cgroup, start_in, tracking

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

MINE = Knobs(1, tgid=os.getpid())


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("tracker", TRACKERS, ids=lambda tracker: tracker.name)
def test_every_row_attaches_with_all_that_may_be_asked_for(tracker):
    knobs = Knobs(1, stacks=~MINE.stacks if tracker.stacks else MINE.stacks)
    with tracking(tracker, knobs) as tracked:
        assert {what for what, variant in tracked.programs.variants.items() if variant} >= {"flush"}
        assert set(tracker.optional) <= set(tracked.programs.variants), "by the first variant or another"


def test_a_wake_up_lasts_from_the_waker_to_the_woken():
    read, write = os.pipe()
    with tracking(WAKEUP, MINE) as tracked:
        stamps = []

        def wait():
            os.read(read, 1)
            stamps.append(now_ns())

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: "pipe_read" in wchan(waiting.native_id), "it waits")
        before_ns = now_ns()
        os.write(write, b"x")
        waiting.join()

        def woken():
            mine = [record for record, _ in tracked.found() if record["tid"] == waiting.native_id]
            return [record for record in mine if record["start_ns"] >= before_ns]

        record = wait_until(woken, "its wake-up")[0]
    assert before_ns <= record["start_ns"]
    assert record["start_ns"] + record["duration_ns"] <= stamps[0]
    os.close(read)
    os.close(write)


def wchan(tid: int) -> str:
    with open(f"/proc/{os.getpid()}/task/{tid}/wchan") as place:  # noqa: PTH123 - it is read again and again
        return place.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_first_byte_is_timed_from_the_accept_to_the_first_send(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with tracking(TTFB, MINE) as tracked, socket.create_server((host, 0), family=family) as listener:
        with socket.create_connection(listener.getsockname()[:2]), listener.accept()[0]:
            assert 1 == tracked.programs.size()
        wait_until(lambda: tracked.programs.size() == 0, "nothing was sent: its end is not told")
        client = socket.create_connection(listener.getsockname()[:2])
        before_ns = now_ns()
        server, _ = listener.accept()
        accepted_ns = now_ns()
        time.sleep(0.02)
        sending_ns = now_ns()
        server.sendall(b"first")
        sent_ns = now_ns()
        server.sendall(b"second")
        client.sendall(b"the client's")
        ((record, _),) = tracked.until(lambda found: found, "the first byte")
        assert 0 == tracked.programs.size()
    assert before_ns <= record["start_ns"] <= accepted_ns
    assert sending_ns <= record["start_ns"] + record["duration_ns"] <= sent_ns
    assert threading.get_native_id() == record["tid"]
    client.close()
    server.close()


def test_sockets_that_are_not_tcp_have_no_first_byte(tmp_path):
    with tracking(TTFB, MINE) as tracked, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "socket"))
            with listener.accept()[0] as server:
                assert 0 == tracked.programs.size()
                server.sendall(b"x")
        assert [] == tracked.found()


def test_accepts_by_io_uring_are_counted_as_not_covered():
    with cgroup("uring") as folder, tracking(TTFB, Knobs(1, cgroup_id=folder.stat().st_ino)) as tracked:
        out, _ = start_in(folder, *blocked("uring", 1), stdout=subprocess.PIPE).communicate()
        if out.strip() != "1":
            pytest.skip("this kernel refuses io_uring")
        assert 1 == tracked.programs.told()["uncovered"]
        assert 0 == tracked.programs.size()


def test_a_packet_lasts_from_the_interface_to_the_process_that_reads_it():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        reader, _ = listener.accept()
    with tracking(NET, MINE) as tracked:
        before_ns = now_ns()
        sender.send(b"a packet")
        time.sleep(0.02)
        reading_ns = now_ns()
        assert b"a packet" == reader.recv(100)
        read_ns = now_ns()
        ((record, _),) = tracked.until(lambda found: found, "the packet")
    assert before_ns <= record["start_ns"] <= reading_ns
    assert reading_ns <= record["start_ns"] + record["duration_ns"] <= read_ns
    assert record["duration_ns"] > 15 * MS
    assert threading.get_native_id() == record["tid"]
    sender.close()
    reader.close()


def test_what_comes_from_no_interface_is_no_packet():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with tracking(NET, MINE) as tracked:
        for _ in range(100):
            one.send(b"x")
            other.recv(1)
        assert [] == tracked.found()
    one.close()
    other.close()
