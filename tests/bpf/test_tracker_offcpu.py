"""Tasks off their processor: why, for how long, where they wait, and who wakes them."""

import os
import signal
import subprocess
import threading
import time

import pytest

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.signals.trackers import OFFCPU
from latencyprobe_agent.vocabulary.records import OffcpuReason, StackOptionFlags
from tests.support.waiting import wait_until
from tests.truth.quota import limited, throttled_ns
from tests.truth.tracking import MS, Found, Names, blocked, cgroup, start_in, tracking

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

KERNEL = StackOptionFlags.KERNEL
NOBODY = Knobs(5 * MS, tracking=False, stacks=KERNEL)


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def reasons(found: Found) -> set[int]:
    return {int(record["payload"][0]) for record, _ in found}


def test_a_sleep_is_interruptible_and_has_the_stack_where_it_waits():
    """Of several: a kernel that runs under process 1 of a host may keep the end of one from all programs
    (docs/design/tracker.md)."""
    tid, sleeps = threading.get_native_id(), []

    def is_sleep(record):
        return (record["tid"], record["payload"][0]) == (tid, OffcpuReason.INTERRUPTIBLE)

    def told(found):
        if any(is_sleep(record) for record, _ in found):
            return True
        before_ns = now_ns()
        time.sleep(0.05)
        sleeps.append((before_ns, now_ns()))
        return False

    with tracking(OFFCPU, Knobs(20 * MS, tgid=os.getpid(), stacks=KERNEL)) as tracked:
        found = tracked.until(told, "a sleep")
    record, stacks = next(one for one in found if is_sleep(one[0]))
    ended_ns = record["start_ns"] + record["duration_ns"]
    assert any(before_ns <= record["start_ns"] and ended_ns <= after_ns for before_ns, after_ns in sleeps)
    assert record["duration_ns"] > 20 * MS
    ((elapsed_ns, addresses),) = stacks.kernel
    assert record["duration_ns"] == elapsed_ns
    assert "hrtimer_nanosleep" in Names.of(addresses)


def test_the_waker_is_the_thread_that_wakes_and_its_stack_is_its_own():
    """Of several, as above."""
    me, wakers = threading.get_native_id(), []

    def woken(found):
        stacks = [stacks for record, stacks in found if record["tid"] == me and "futex_wake" in Names.of(stacks.waker)]
        return stacks or waits_for_another_thread()

    def waits_for_another_thread():
        event = threading.Event()

        def wake():
            wakers.append(threading.get_native_id())
            time.sleep(0.05)  # the wait that is to be told of, above the threshold
            event.set()

        waker = threading.Thread(target=wake)
        waker.start()
        event.wait()
        waker.join()

    with tracking(OFFCPU, Knobs(20 * MS, tgid=os.getpid(), stacks=KERNEL | StackOptionFlags.WAKER)) as tracked:
        tracked.until(woken, "the wait")
        stacks, *_ = woken(tracked.found())
    assert stacks.woken_by is not None
    pid, waker = stacks.woken_by[1:]
    assert os.getpid() == pid
    assert waker in wakers
    assert "__x64_sys_futex" in Names.of(stacks.kernel[0][1])


def test_a_task_that_waits_uninterruptibly_one_that_is_stopped_and_one_that_has_to_share():
    with cgroup("reasons") as folder, tracking(OFFCPU, Knobs(MS, cgroup_id=folder.stat().st_ino)) as tracked:
        assert 0 == start_in(folder, *blocked("vfork", 30)).wait()
        tracked.until(lambda found: OffcpuReason.DISK in reasons(found), "vfork waits uninterruptibly")

        stopped = start_in(folder, *blocked("again", 5))
        tracked.until(lambda found: stopped.pid in [record["tid"] for record, _ in found], "it sleeps")
        stopped.send_signal(signal.SIGSTOP)
        wait_until(lambda: ") T" in open_stat(stopped.pid), "it has stopped")
        time.sleep(0.005)  # of these it is told
        stopped.send_signal(signal.SIGCONT)
        tracked.until(lambda found: OffcpuReason.OTHER in reasons(found), "it was stopped")
        stopped.kill()
        stopped.wait()

        here = str(min(os.sched_getaffinity(0)))
        burning = [start_in(folder, "taskset", "-c", here, *blocked("burn", 10_000)) for _ in range(2)]
        tracked.until(lambda found: OffcpuReason.PREEMPTED in reasons(found), "one is preempted by the other")
        for one in burning:
            one.kill()
            one.wait()
        wait_until(lambda: 0 == tracked.programs.size(), "no entry is left", seen=tracked.programs.size)
        statistics = tracked.programs.statistics()
    assert all(statistics["count"][kind] > 0 for kind in OffcpuReason if kind != OffcpuReason.THROTTLED)
    assert 0 == statistics["count"][OffcpuReason.THROTTLED]
    assert statistics["max_ns"][OffcpuReason.DISK] >= 30 * MS


def test_a_task_beyond_its_cpu_quota_is_throttled():
    """A fiftieth of a CPU, in a cgroup below that with the quota."""
    limits = {"cpu.max": "2000 100000"}, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "2000"}
    with limited("cpu", *limits) as folder, tracking(OFFCPU, Knobs(20 * MS, comm="blocked")) as tracked:
        (below := folder / "below").mkdir()
        burning = start_in(below, *blocked("burn", 10_000))
        try:
            tracked.until(lambda found: [one["payload"][0] for one, _ in found].count(OffcpuReason.THROTTLED) > 3, "it")
        finally:
            burning.kill()
            burning.wait()
        kept_ns = throttled_ns(folder)
        wait_until(lambda: below.rmdir() is None, "the cgroup is empty", unready=OSError)
        told = [record for record, _ in tracked.found() if record["payload"][0] == OffcpuReason.THROTTLED]
        statistics = tracked.programs.statistics()
    assert {burning.pid} == {int(record["tid"]) for record in told}
    assert sum(int(record["duration_ns"]) for record in told) < 2 * kept_ns, "mostly, of each"
    assert statistics["count"][OffcpuReason.THROTTLED] >= len(told)


def test_tasks_of_cgroups_below_the_one_that_is_named_are_followed_and_no_others():
    with cgroup("above") as folder, cgroup("beside") as beside:
        deep = folder / "a" / "b" / "c"
        deep.mkdir(parents=True)
        with tracking(OFFCPU, Knobs(MS, cgroup_id=folder.stat().st_ino)) as tracked:
            other = start_in(beside, *blocked("again", 5))
            inside = [start_in(one, *blocked("again", 5)) for one in (folder, deep)]
            pids = {one.pid for one in inside}
            found = tracked.until(lambda found: pids <= {int(record["tid"]) for record, _ in found}, "both")
            for one in (other, *inside):
                one.kill()
                one.wait()
        for one in (deep, deep.parent, deep.parent.parent):
            wait_until(lambda one=one: one.rmdir() is None, "the cgroup is empty", unready=OSError)
    assert other.pid not in {int(record["tid"]) for record, _ in found}


def open_stat(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - it is read again and again
        return stat.read()


@pytest.mark.parametrize("mode", ["exec", "exit", "kill", "never"])
def test_threads_leave_no_entry_however_they_end(mode):
    with cgroup(f"off-{mode}") as folder:
        knobs = Knobs(1, cgroup_id=folder.stat().st_ino, stacks=KERNEL | StackOptionFlags.WAKER)
        with tracking(OFFCPU, knobs, ring_bytes=1 << 22) as tracked:
            for _ in range(4):
                program = start_in(folder, *blocked(mode, 100), stdout=subprocess.PIPE)
                if mode == "never":
                    program.stdout.readline()
                    program.kill()
                program.communicate()
                tracked.found()
            wait_until(lambda: 0 == tracked.programs.size(), "no entry is left", seen=tracked.programs.size)
            assert len(tracked.found()) > 100
            assert 0 == len(tracked.calls)
