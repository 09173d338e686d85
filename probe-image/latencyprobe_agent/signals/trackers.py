"""The tracker table: one row per thing that begins and ends, docs/design/tracker.md. A new tracker is a new row."""

from dataclasses import dataclass

import numpy as np

from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.vocabulary.records import TRACKED


@dataclass(frozen=True, kw_only=True)
class Tracker(Signal):
    """A row. `title`: what it measures, in words; `threshold_ns`: what takes longer has a record, unless somebody asks
    for another; `gc_threshold_ns`: what is open for longer is given up, 0 = nothing is.

    `stacks`: it has a ring of stacks; `on_request`: the events that are attached only where somebody asks for what they
    see: `kernel` stacks, the `waker`.
    """

    title: str
    ring: str = "tracked"
    record: np.dtype[np.void] = TRACKED
    iterated: str = "entries"
    threshold_ns: int = 1_000_000
    gc_threshold_ns: int = 0
    stacks: bool = False
    on_request: tuple[tuple[str, str], ...] = ()


SYSCALLS = Tracker(
    name="tracker_syscalls",
    title="system calls",
    threshold_ns=20_000_000,
    stacks=True,
    on_request=(("kernel", "blocked"),),
)
OFFCPU = Tracker(
    name="tracker_offcpu",
    title="time off the processor",
    threshold_ns=20_000_000,
    stacks=True,
    on_request=(("waker", "waking"),),
)
WAKEUP = Tracker(name="tracker_wakeup", title="time from being woken to having a processor")
TTFB = Tracker(
    name="tracker_ttfb",
    title="time from accept() to the first send on the connection",
    optional=("uring",),
)
NET = Tracker(
    name="tracker_net",
    title="time of packets from the interface to the process that reads them",
    gc_threshold_ns=10_000_000_000,  # packets that end unseen
)
RECORDER = Tracker(
    name="tracker_recorder",
    title="system calls, switches and wake-ups, the newest of each CPU",
    threshold_ns=20_000_000,
    stacks=True,
    on_request=(("kernel", "blocked"),),
)
TRACKERS: tuple[Tracker, ...] = (SYSCALLS, OFFCPU, WAKEUP, TTFB, NET, RECORDER)
