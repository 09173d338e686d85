"""System calls that a tracker tells of, beside the log of who made them; whose stacks they are; and nothing is left."""

import errno
import os
import platform
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.measure.calls_in_progress import Stacks
from latencyprobe_agent.signals.trackers import SYSCALLS
from latencyprobe_agent.vocabulary.records import StackOptionFlags, TrackedFlag
from latencyprobe_agent.vocabulary.syscalls import name, number
from tests.support.waiting import wait_until
from tests.truth.tracking import MS, Names, blocked, cgroup, start_in, tracking

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

SLEEPS = int(os.environ.get("SLEEPS", "60"))
STACKS = int(os.environ.get("STACKS", "2000"))  # of each of two threads; 50,000 in a minute
THREADS = int(os.environ.get("THREADS", "2000"))  # in processes of 100; 10,000 in a minute
KERNEL = StackOptionFlags.KERNEL
NOBODY = Knobs(5 * MS, tracking=False)  # yet
DEEP = r"""
#include <sys/syscall.h>
#include <time.h>

__attribute__((noinline)) long nap(int depth)
{
    struct timespec t = {0, 30000000};
    long result;

    if (depth) {
        result = nap(depth - 1);
        __asm__ volatile("" : "+r"(result));
        return result;
    }
    result = SYS_nanosleep;
    __asm__ volatile("syscall" : "+a"(result) : "D"(&t), "S"(0) : "rcx", "r11", "memory");
    return result;
}

void entry(void)
{
    for (;;) {
        long result = nap(4);
        __asm__ volatile("" ::"r"(result));
    }
}

__asm__(".globl _start\n_start: xor %rbp, %rbp\n call entry\n hlt\n");
"""


def of(folder: Path, stacks: StackOptionFlags = NOBODY.stacks) -> Knobs:
    """Everything that those of a cgroup do."""
    return Knobs(1, cgroup_id=folder.stat().st_ino, stacks=stacks)


def call(record: np.void) -> str:
    return name(int(record["payload"][0]))


def naps(found: Sequence[tuple[np.void, Stacks]]) -> list[np.void]:
    return [record for record, _ in found if call(record) == "clock_nanosleep"]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_every_sleep_above_the_threshold_is_told_as_its_log_has_it_and_none_below():
    threshold_ns = 20 * MS
    with cgroup("sleeps") as folder, tracking(SYSCALLS, replace(of(folder), threshold_ns=threshold_ns)) as tracked:
        program = start_in(folder, *blocked("sleeps", 7, SLEEPS, 80_000), stdout=subprocess.PIPE)
        out, _ = program.communicate()
        log = [tuple(map(int, line.split())) for line in out.splitlines()]
        long = [one for one in log if one[1] > threshold_ns]
        found = tracked.until(lambda found: len(naps(found)) >= len(long), "all long sleeps")
    told = {}
    for record in naps(found):
        start_ns = int(record["start_ns"])
        (at,) = [i for i, (before_ns, _, after_ns) in enumerate(log) if before_ns <= start_ns <= after_ns]
        told[at] = record
    assert SLEEPS == len(log) > len(long) > SLEEPS / 2
    for i, (before_ns, asked_ns, after_ns) in enumerate(log):
        if i in told:
            start_ns, duration_ns = int(told[i]["start_ns"]), int(told[i]["duration_ns"])
            assert threshold_ns < duration_ns
            assert before_ns <= start_ns
            assert start_ns + duration_ns <= after_ns
            assert asked_ns <= duration_ns
        else:
            assert asked_ns <= threshold_ns


def test_each_of_two_threads_that_block_in_different_calls_has_its_own_stacks():
    expected = {"clock_nanosleep": "__x64_sys_clock_nanosleep", "ppoll": "__x64_sys_ppoll"}
    with cgroup("pair") as folder, tracking(SYSCALLS, of(folder, KERNEL), ring_bytes=1 << 24) as tracked:
        program = start_in(folder, *blocked("pair", STACKS))
        while program.poll() is None:
            tracked.found()
            time.sleep(0.01)
        found = [(record, stacks) for record, stacks in tracked.found() if call(record) in expected]
        told, lost = tracked.programs.told(), tracked.programs.lost()
    stacks, wrong = dict.fromkeys(expected, 0), 0
    for record, own in found:
        stacks[call(record)] += len(own.kernel)
        wrong += sum(expected[call(record)] not in Names.of(addresses) for _, addresses in own.kernel)
    print(f"{stacks} stacks of {len(found)} calls, {wrong} wrong; {told}")
    assert 0 == wrong
    assert 2 * STACKS == len(found) + lost["ring_full"]
    assert sum(stacks.values()) + told["stacks_lost"] >= 1.9 * STACKS


def test_a_call_that_a_stop_interrupts_goes_on_and_one_that_a_handler_interrupts_ends():
    with tracking(SYSCALLS, NOBODY) as tracked:
        program = subprocess.Popen(blocked("again", 200))
        try:
            tracked.programs.turn(tgid=program.pid, tracking=True)
            tracked.until(naps, "a whole sleep")
            for _ in range(5):
                program.send_signal(signal.SIGSTOP)
                wait_until(lambda: state(program.pid) == "T", "it has stopped")
                program.send_signal(signal.SIGCONT)
                wait_until(lambda: state(program.pid) != "T", "it goes on")
            whole = naps(tracked.until(lambda found: len(naps(found)) > 3, "sleeps that were stopped"))
            assert {0} == {int(record["ret"]) for record in whole}, "none was cut"
            assert all(record["duration_ns"] >= 200 * MS for record in whole)

            def cut() -> list[np.void]:
                program.send_signal(signal.SIGUSR1)
                return [record for record in naps(tracked.found()) if record["ret"] < 0]

            short = wait_until(cut, "a sleep that a handler cuts", poll_s=0.03)[0]
            assert -errno.EINTR == short["ret"]
            assert short["duration_ns"] < 200 * MS
        finally:
            program.kill()
            program.wait()


def test_a_call_that_goes_on_is_told_of_after_its_timeout_and_at_its_end():
    read, write = os.pipe()
    knobs = Knobs(5 * MS, timeout_ns=20 * MS, tgid=os.getpid(), left_out=frozenset({number("futex")}))
    with tracking(SYSCALLS, knobs) as tracked:
        reader = threading.Thread(target=os.read, args=(read, 1))
        reader.start()

        def of_reader(found):
            return [record for record, _ in found if (record["tid"], call(record)) == (reader.native_id, "read")]

        def timed_out():
            tracked.programs.flush()
            return of_reader(tracked.found(TrackedFlag.TIMEOUT))

        def over():
            return of_reader(tracked.found())

        (going_on,) = wait_until(timed_out, "its timeout")
        assert going_on["duration_ns"] > 20 * MS
        assert 1 == len(timed_out()), "once"
        os.write(write, b"x")
        reader.join()
        (ended,) = wait_until(over, "its end")
    assert (going_on["start_ns"], "read", 1) == (ended["start_ns"], call(ended), ended["ret"])
    os.close(read)
    os.close(write)


def test_what_is_left_out_is_not_followed_and_what_is_turned_in_is():
    waits = {number("pselect6"), number("select")}
    with tracking(SYSCALLS, Knobs(5 * MS, tgid=os.getpid(), left_out=frozenset(waits))) as tracked:
        select.select([], [], [], 0.02)
        time.sleep(0.02)
        found = tracked.until(lambda found: "clock_nanosleep" in [call(record) for record, _ in found], "the sleep")
        assert waits.isdisjoint(int(record["payload"][0]) for record, _ in found)
        tracked.programs.turn(left_out=frozenset())
        select.select([], [], [], 0.02)
        tracked.until(lambda found: waits & {int(record["payload"][0]) for record, _ in found}, "the select")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its program is in assembly of x86-64")
def test_the_user_stack_is_the_callers_and_is_complete_with_frame_pointers(tmp_path):
    source, program = tmp_path / "deep.c", tmp_path / "deep"
    source.write_text(DEEP)
    flags = ["-O1", "-fno-omit-frame-pointer", "-nostartfiles", "-static"]
    subprocess.run(["cc", *flags, "-o", program, source], check=True)
    symbols = {}
    for line in subprocess.check_output(["nm", "-n", program], text=True).splitlines():
        address, _, symbol = line.split()
        symbols[int(address, 16)] = symbol
    with tracking(SYSCALLS, replace(NOBODY, stacks=KERNEL | StackOptionFlags.USER)) as tracked:
        running = subprocess.Popen([program])
        try:
            tracked.programs.turn(tgid=running.pid, tracking=True)
            found = tracked.until(lambda found: any(stacks.kernel for _, stacks in found), "its naps")
            stacks = next(stacks for _, stacks in found if stacks.kernel)
        finally:
            running.kill()
            running.wait()
    names = [symbols[max(at for at in symbols if at <= address)] for address in stacks.user]
    assert 5 * ["nap"] + ["entry", "_start"] == names
    assert stacks.user_complete
    assert "__x64_sys_nanosleep" in Names.of(stacks.kernel[0][1])


@pytest.mark.parametrize("mode", ["exec", "exit", "kill", "signals", "never"])
def test_threads_leave_no_entry_however_they_end(mode):
    with cgroup(mode) as folder, tracking(SYSCALLS, of(folder, KERNEL), ring_bytes=1 << 22) as tracked:
        for _ in range(max(1, THREADS // 500)):
            program = start_in(folder, *blocked(mode, 100), stdout=subprocess.PIPE)
            if mode == "never":
                program.stdout.readline()
                assert tracked.programs.size() >= 100, "they are there"
                program.kill()
            program.communicate()
            tracked.found()
        wait_until(lambda: 0 == tracked.programs.size(), "no entry is left", seen=tracked.programs.size)
        found = tracked.found()
        told = tracked.programs.told()
    wrong = [
        (call(record), Names.of(addresses))
        for record, stacks in found
        for _, addresses in stacks.kernel
        if {frame for frame in Names.of(addresses) if "64_sys_" in frame}
        - {f"{prefix}_{call(record)}" for prefix in ("__x64_sys", "__arm64_sys")}
    ]
    print(f"{mode}: {len(found)} calls, {sum(len(stacks.kernel) for _, stacks in found)} stacks, {told}")
    assert [] == wrong[:3]
    assert 0 == told["skipped"]
    assert 0 == len(tracked.calls), "stacks of calls that never ended are let go of"
