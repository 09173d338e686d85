"""Waits for what a container may not have more of: CPU beyond its quota, memory beyond its limit."""

import os
import subprocess
from pathlib import Path

import pytest

from latencyprobe.plan import WaitPolicy
from latencyprobe_agent.signals.waits import reason
from latencyprobe_agent.symbols.kallsyms import KernelNames
from latencyprobe_agent.vocabulary.records import WaitKind
from tests.truth.quota import limited, throttled_ns
from tests.truth.waiting_client import BOTH, MS, blocked_ms, split_of, waiting_server

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]


def test_a_request_beyond_its_cpu_quota_is_throttled(waits, port):
    """A twentieth of a CPU, which the process would get on any machine; it comes into the cgroup when only this request
    is left for it to do, as a thread that still begins or ends would use the quota and hold the interpreter's lock.
    """
    with (
        limited(
            "cpu", {"cpu.max": "5000 100000"}, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000"}
        ) as folder,
        waiting_server(port) as server,
    ):
        asked = server.connect()
        asked.ask("nothing")
        (folder / "cgroup.procs").write_text(str(server.pid))
        before_ns = throttled_ns(folder)
        record = split_of(waits, asked.ask("burn 0.03"))
        kept_ns = throttled_ns(folder) - before_ns
    print(f"{blocked_ms(record)}; the kernel's own account: {kept_ns / MS:.1f} ms")
    assert 100 * MS < kept_ns
    assert 0.8 * kept_ns < record["throttled_ns"] < kept_ns + 1_000, "told in whole µs"
    assert "throttled" in {reason(wait) for wait in waits.records(kind=WaitKind.ONE)}


def test_a_busy_cpu_without_a_quota_throttles_nobody(waits, server):
    several = [server.connect() for _ in range(6)]
    for one in several:
        one.say("burn 0.1")
    for one in several:
        record = split_of(waits, one.hear())
        assert 0 == record["throttled_ns"]
        assert record["ready_ns"] > 0


def run_delay_ns(tid: int) -> int:
    """How long a thread could have run and did not, as the kernel tells it."""
    return int(Path(f"/proc/{tid}/schedstat").read_text().split()[1])


def test_a_request_that_shares_its_cpu_is_preempted(waits, port):
    cpu = min(os.sched_getaffinity(0))
    with waiting_server(port) as server, subprocess.Popen(["sh", "-c", "while :; do :; done"]) as neighbour:
        try:
            for pid in (server.pid, neighbour.pid):
                os.sched_setaffinity(pid, {cpu})
            asked = server.connect()
            tid = asked.ask("nothing").tid
            before_ns = run_delay_ns(tid)
            record = split_of(waits, asked.ask("burn 0.1"))
            waited_ns = run_delay_ns(tid) - before_ns
        finally:
            neighbour.kill()
    print(f"{blocked_ms(record)}; the kernel's own account: {waited_ns / MS:.1f} ms")
    assert 20 * MS < record["preempted_ns"] <= record["ready_ns"] < 1.02 * waited_ns, "but for the switches themselves"
    assert 0 == record["throttled_ns"]


def test_memory_that_the_kernel_has_to_find_first_is_waited_for_on_its_stack(session, waits, port):
    session.measure(port, evidence=BOTH, waits=WaitPolicy(slow_call_ns=MS // 2, slow_offcpu_ns=20 * MS, stacks=True))
    limits = {"memory.limit_in_bytes": str(40 << 20)}
    with (
        limited("memory", {"memory.high": str(40 << 20)}, limits) as folder,
        waiting_server(port, cgroups=(folder,)) as server,
    ):
        record = split_of(waits, server.connect().ask("touch 100"))
        stacks = [wait["stack"][: wait["frames"]] for wait in waits.records(kind=WaitKind.ONE)]
    symbols = KernelNames()
    named = [symbols(stack) for stack in stacks]
    print(blocked_ms(record))
    assert any("try_charge_memcg" in stack or "mem_cgroup_handle_over_high" in stack for stack in named), named
