"""What the trackers of system calls and of time off the processor cost who is followed: detached, attached and switched
off, with nothing above the threshold, with the tools' own. Under a ping-pong and Redis; host_part.py has others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from benchmarks import rounds
from benchmarks.builds import OBJECTS
from benchmarks.loads import pingpong, redis
from benchmarks.report import Report
from benchmarks.variants import Taken, drained, with_control
from latencyprobe_agent.kernel.tracking import Knobs, TrackerPrograms
from latencyprobe_agent.signals.trackers import OFFCPU, SYSCALLS, Tracker
from latencyprobe_agent.vocabulary.records import StackOptionFlags

_PINGPONG, _REDIS = 7873, 7874
_NEVER_NS = 2**64 - 1
_EVERYBODY = Knobs(_NEVER_NS, stacks=StackOptionFlags.KERNEL)
_TOOL = replace(_EVERYBODY, threshold_ns=20_000_000)
_SMALL = replace(_EVERYBODY, threshold_ns=200_000, records_per_second=10_000, stacks_per_second=10_000)


@contextmanager
def tracking(tracker: Tracker, knobs: Knobs) -> Iterator[Taken]:
    """Attach a row, and read what it tells, as a tool does."""
    with (
        TrackerPrograms.open(OBJECTS, tracker, knobs, ring_bytes=1 << 22) as programs,
        drained(programs, also=programs.stacks) as taken,
    ):
        yield taken


def trackers(cgroup_id: int = 0) -> dict[str, rounds.Variant]:
    """Both rows in all their ways, between nothing and nothing again. `cgroup_id`: who is followed; 0: everybody."""
    ways = {
        "switched off": replace(_EVERYBODY, tracking=False),
        "nothing above the threshold": _EVERYBODY,
        "above 20 ms with stacks": _TOOL,
        "above 0.2 ms with stacks": _SMALL,
    }
    found = {
        f"{name}, {way}": partial(tracking, tracker, replace(knobs, cgroup_id=cgroup_id))
        for name, tracker in (("syscalls", SYSCALLS), ("offcpu", OFFCPU))
        for way, knobs in ways.items()
    }
    return with_control(found)


def calls_per_second(load: Callable[[], float]) -> float:
    """System calls of all tasks per second, while a load runs that says how many seconds it took."""
    with TrackerPrograms.open(OBJECTS, SYSCALLS, _EVERYBODY) as programs:
        seconds = load()
        return float(programs.statistics()["count"].sum()) / seconds


def cost_of_trackers(report: Report, count: int, turns: int) -> None:
    """A ping-pong and Redis at saturation by CPU time."""
    variants = trackers()
    slices, note = rounds.run("ping-pong", lambda _: pingpong(_PINGPONG, turns), variants, count)
    report.compared(f"CPU of a 64-byte RPC over loopback, every task of the host followed ({note})", slices)
    with redis(_REDIS) as server:
        slices, note = rounds.run("Redis GET", lambda _: server.get(turns), variants, count)
    report.compared(f"CPU of the Redis server per GET, every task of the host followed ({note})", slices)
