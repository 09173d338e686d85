"""Switches and wake-ups that a snapshot should have and has not: a kernel may run no program while some tasks run.

Known by what does not fit together: a thread that comes twice, or leaves twice, without the other in between; one that
had blocked and had the CPU again, though nobody woke it. Pure.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.recording.snapshot import FOLLOWED, OTHER_FOLLOWED, PREEMPTED, SWITCH, WAKEUP, Snapshot

_WOKEN, _CAME, _LEFT, _BLOCKED = range(4)


class Untold(NamedTuple):
    """How many there must have been, of threads that are followed, in the time that every CPU's events cover."""

    switches: int
    wakeups: int


def untold(snapshot: Snapshot) -> Untold:
    """Return what the kernel told nobody of; none where events are `missing`, for these are counted already."""
    header = snapshot.header
    if not snapshot.events or any(cpu.missing for cpu in header.cpus):
        return Untold(0, 0)
    since_ns, until_ns = max(cpu.from_ns for cpu in header.cpus), min(cpu.to_ns for cpu in header.cpus)
    events = np.concatenate(snapshot.events)
    of, what = _by_thread(events[(events["time_ns"] >= since_ns) & (events["time_ns"] <= until_ns)])
    switched = what != _WOKEN
    wakeups = np.cumsum(~switched)[switched]
    of, what = of[switched], what[switched]
    same = of[1:] == of[:-1]
    twice = same & ((what[1:] == _CAME) == (what[:-1] == _CAME))
    # a wake-up of who is about to block may be stamped before its switch
    since = np.where(what[:-2] == _CAME, wakeups[:-2], wakeups[1:-1])
    unwoken = same[:-1] & same[1:] & (what[1:-1] == _BLOCKED) & (wakeups[2:] == since)
    return Untold(
        int(twice.sum()) if "switches" in header.contents else 0,
        int(unwoken.sum()) if {"switches", "wakeups"} <= set(header.contents) else 0,
    )


def _by_thread(events: NDArray[np.void]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return thread and what happened to it, thread by thread, each in the order of time."""
    switches, woken = events[events["kind"] == SWITCH], events[events["kind"] == WAKEUP]
    left = switches[switches["flags"] & FOLLOWED != 0]
    came = switches[switches["flags"] & OTHER_FOLLOWED != 0]
    of = np.concatenate([left["tid"], came["other_tid"], woken["other_tid"]])
    at_ns = np.concatenate([left["time_ns"], came["time_ns"], woken["time_ns"]])
    what = np.concatenate(
        [
            np.where(left["flags"] & PREEMPTED, _LEFT, _BLOCKED).astype(np.uint8),
            np.full(len(came), _CAME, np.uint8),
            np.full(len(woken), _WOKEN, np.uint8),
        ]
    )
    order = np.lexsort((at_ns, of))
    return of[order], what[order]
