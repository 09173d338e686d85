"""From what is kept of each CPU to a snapshot: the window before a trigger, and what is not in it. Pure."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.recording.snapshot import CALL, COMPAT, EVENT, Cpu

AT_MOST_EVERY_NS = 1_000_000_000


class Pace:
    """At most one snapshot per second; `suppressed` counts the triggers since the last one that came too soon."""

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self.suppressed = 0

    def allows(self, now_ns: int) -> bool:
        """Return whether a trigger may have a snapshot at this moment; if not, it is counted."""
        if self._last_ns is not None and now_ns - self._last_ns < AT_MOST_EVERY_NS:
            self.suppressed += 1
            return False
        self._last_ns = now_ns
        return True

    def told(self) -> int:
        """Return how many were suppressed since this was asked before."""
        suppressed, self.suppressed = self.suppressed, 0
        return suppressed


def window(values: NDArray[np.void], cpu: Cpu, since_ns: int) -> tuple[Cpu, NDArray[np.void]]:
    """Return a CPU's events (EVENT) since a moment, of all that are kept (RECORDED_VALUE), and what they cover.

    `cpu` says what the copy covers; its `events` is not looked at. By number, and not by time: an event that interrupts
    another one while that is written has the later number and may have the earlier stamp.
    """
    records = values["record"]
    inside = np.flatnonzero(records["time_ns"] >= since_ns)
    first = int(inside[0]) if len(inside) else len(records)
    events = np.zeros(len(records) - first, EVENT)
    events["number"] = values["number"][first:]
    for name in EVENT.names or ():
        if name in ("comm", "other_comm"):
            events[name] = np.ascontiguousarray(records[name][first:]).view("S16").reshape(-1)
        elif name != "number":
            events[name] = records[name][first:]
    from_ns = max(cpu.from_ns, since_ns)
    return Cpu(cpu.cpu, len(events), from_ns, max(cpu.to_ns, from_ns), cpu.overwritten, cpu.missing), events


def calls(of: list[NDArray[np.void]], name: Callable[[int], str]) -> dict[int, str]:
    """Return the names of the system calls that there are."""
    numbers: set[int] = set()
    for events in of:
        numbers |= set(np.unique(events["nr"][(events["kind"] == CALL) & (events["flags"] & COMPAT == 0)]).tolist())
    return {nr: name(nr) for nr in sorted(numbers)}
