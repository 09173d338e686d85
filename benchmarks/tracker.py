"""What the trackers of system calls and of time off the processor cost who is followed: detached, attached and switched
off, with nothing above the threshold, with the tools' own; beside how much of what they follow there is."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks import rounds
from benchmarks.builds import OBJECTS
from benchmarks.compare import F64
from benchmarks.loads import pingpong, redis
from benchmarks.processes import own_s
from benchmarks.report import Report
from benchmarks.variants import drained, with_control
from latencyprobe_agent.kernel.tracking import Knobs, TrackerPrograms
from latencyprobe_agent.signals.trackers import OFFCPU, SYSCALLS, Tracker
from latencyprobe_agent.vocabulary.records import StackOptionFlags

_PINGPONG, _REDIS = 7873, 7874
_NEVER_NS = 2**64 - 1
_EVERYBODY = Knobs(_NEVER_NS, stacks=StackOptionFlags.KERNEL)
_TOOL = replace(_EVERYBODY, threshold_ns=20_000_000)
_SMALL = replace(_EVERYBODY, threshold_ns=200_000, records_per_second=10_000, stacks_per_second=10_000)


@contextmanager
def tracking(tracker: Tracker, knobs: Knobs) -> Iterator[None]:
    """Attach a row, and read what it tells, as a tool does."""
    with TrackerPrograms.open(OBJECTS, tracker, knobs, ring_bytes=1 << 22) as programs, drained(programs):
        yield


def _variants() -> dict[str, rounds.Variant]:
    found = {}
    for name, tracker in (("syscalls", SYSCALLS), ("offcpu", OFFCPU)):
        found[f"{name}, switched off"] = partial(tracking, tracker, replace(_EVERYBODY, tracking=False))
        found[f"{name}, nothing above the threshold"] = partial(tracking, tracker, _EVERYBODY)
        found[f"{name}, above 20 ms with stacks"] = partial(tracking, tracker, _TOOL)
        found[f"{name}, above 0.2 ms with stacks"] = partial(tracking, tracker, _SMALL)
    return with_control(found)


def _switches() -> int:
    with open("/proc/stat") as stat:  # noqa: PTH123 - one line of many
        return next(int(line.split()[1]) for line in stat if line.startswith("ctxt"))


def _hackbench(cpus: int, loops: int) -> float:
    """CPU time of `perf bench sched messaging`, 400 processes on so many processors, in ns: fixed work."""
    words = f"taskset -c 0-{cpus - 1} perf bench sched messaging -g 10 -l {loops} -p".split()
    before_s = own_s()
    subprocess.run(words, check=True, capture_output=True)
    return (own_s() - before_s) * 1e9


def cost_of_trackers(report: Report, count: int, turns: int) -> None:
    """A ping-pong and Redis at saturation by CPU time; hackbench on one and on all processors."""
    variants = _variants()
    slices, note = rounds.run("ping-pong", lambda _: pingpong(_PINGPONG, turns), variants, count)
    report.compared(f"CPU of a 64-byte RPC over loopback, every task of the host followed ({note})", slices)
    with redis(_REDIS) as server:
        slices, note = rounds.run("Redis GET", lambda _: server.get(turns), variants, count)
    report.compared(f"CPU of the Redis server per GET, every task of the host followed ({note})", slices)
    if not shutil.which("perf"):
        report.lacks("tracker: hackbench", "perf is not installed")
        return
    cpus, loops = os.cpu_count() or 1, max(20, turns // 500)
    switches: list[int] = []

    def one(_: object) -> F64:
        before = _switches()
        found = np.array([_hackbench(n, loops) for n in (1, cpus)]) / (20 * 20 * 10 * loops)  # messages
        switches.append(_switches() - before)
        return found

    slices, note = rounds.run("hackbench", one, variants, count)
    for i, title in enumerate(("one processor", f"{cpus} processors")):
        of_title = {variant: values[:, i] for variant, values in slices.items()}
        report.compared(
            f"CPU of a message of hackbench, {title} ({note}; {np.median(switches):,.0f} switches)", of_title
        )
