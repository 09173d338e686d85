"""What a CPU did, from its events: who ran from when to when, which calls ended on it. Pure."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.text import printable
from latencyprobe_agent.recording.snapshot import CALL, COMPAT, FOLLOWED, OTHER_FOLLOWED, SWITCH, Cpu, Header, Snapshot

_SWITCHED = ["time_ns", "tgid", "tid", "other_tgid", "other_tid", "comm", "other_comm", "flags"]


class Slice(NamedTuple):
    """Of a thread, ns of boot time: it had the CPU, or was in a call that ended there; `what`: the call, `ret`: what it
    returned; `idle`: it waited for work."""

    start_ns: int
    end_ns: int
    comm: str
    tgid: int
    tid: int
    what: str = ""
    ret: int = 0
    idle: bool = False


class Track(NamedTuple):
    """A CPU. `running`: nobody twice at a time; what lies between is idle, or was nobody's who is followed."""

    cpu: Cpu
    running: list[Slice]
    calls: list[Slice]


def tracks(snapshot: Snapshot) -> list[Track]:
    """Return what each CPU did."""
    header = snapshot.header
    return [
        Track(cpu, running(events, cpu, header), called(events, header))
        for cpu, events in zip(header.cpus, snapshot.events, strict=True)
    ]


def running(events: NDArray[np.void], cpu: Cpu, header: Header) -> list[Slice]:
    """Return who of those that are followed had the CPU: from a switch to it until the next switch, which is from it.

    Of who is followed every switch is kept: so before the first one it ran since the window began, and after the last
    one it runs until its end. Where events are missing, what does not fit together is left out; and who may have taken
    the name, or entered the cgroup, since it came.
    """
    always = not header.comm and not header.cgroup_id
    switches = np.sort(events[events["kind"] == SWITCH], order="time_ns", kind="stable")
    found: list[Slice] = []
    came_ns, came, kept = cpu.from_ns, None, always
    for time_ns, tgid, tid, other_tgid, other_tid, raw, other_raw, flags in switches[_SWITCHED].tolist():
        first = came is None
        if flags & FOLLOWED and kept and (first or came == tid):
            found.append(Slice(came_ns, max(time_ns, came_ns), name(raw), tgid, tid))
        came_ns, came, kept = time_ns, other_tid, bool(flags & OTHER_FOLLOWED)
        last = Slice(came_ns, max(cpu.to_ns, came_ns), name(other_raw), other_tgid, other_tid)
    if came is not None and flags & OTHER_FOLLOWED:
        found.append(last)
    return found


def called(events: NDArray[np.void], header: Header) -> list[Slice]:
    """Return the system calls that ended on the CPU, by their beginning."""
    calls = np.sort(events[events["kind"] == CALL], order="time_ns", kind="stable")
    found = [
        Slice(
            max(time_ns - duration_ns, 0),
            time_ns,
            name(raw),
            tgid,
            tid,
            call_name(header, nr, flags),
            ret,
            not flags & COMPAT and nr in header.idle,
        )
        for time_ns, duration_ns, tgid, tid, raw, nr, flags, ret in calls[
            ["time_ns", "duration_ns", "tgid", "tid", "comm", "nr", "flags", "ret"]
        ].tolist()
    ]
    return sorted(found)


def call_name(header: Header, nr: int, flags: int = 0) -> str:
    """Return the name of a system call."""
    return f"compat_{nr}" if flags & COMPAT else printable(header.calls.get(nr, f"syscall_{nr}"))


def lanes(of: list[Slice]) -> list[int]:
    """Return the row of each slice, so that none overlaps another one: the first that is free. In order of start."""
    free_ns: list[int] = []
    rows = []
    for one in of:
        row = next((row for row, until_ns in enumerate(free_ns) if until_ns <= one.start_ns), len(free_ns))
        free_ns[row : row + 1] = [max(one.end_ns, one.start_ns + 1)]
        rows.append(row)
    return rows


def stacked(of: list[Slice]) -> list[int]:
    """Return the row of each call: those that wait for work lie below all others. In order of start."""
    working, waiting = (lanes([one for one in of if one.idle == idle]) for idle in (False, True))
    above = max(working, default=-1) + 1
    rows = {False: iter(working), True: (above + row for row in waiting)}
    return [next(rows[one.idle]) for one in of]


def busy(of: list[Slice], from_ns: int, to_ns: int, parts: int) -> list[float]:
    """Return the share of each part of an interval that slices cover which do not overlap: from 0 to 1."""
    edges = np.linspace(from_ns, max(to_ns, from_ns + 1), parts + 1)
    starts = np.array([one.start_ns for one in of], float)
    ends = np.array([one.end_ns for one in of], float)
    covered = [
        float(np.clip(np.minimum(ends, high) - np.maximum(starts, low), 0, None).sum() / (high - low))
        for low, high in pairwise(edges.tolist())
    ]
    return [min(share, 1.0) for share in covered]


def name(raw: bytes) -> str:
    """Return a thread's name; fit for a terminal."""
    return printable(raw.decode(errors="replace"))
