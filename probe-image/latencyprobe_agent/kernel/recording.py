"""The flight recorder in the kernel: a tracker of system calls that keeps the newest events of each CPU.

What it keeps is copied without a pause, while events go on to be written: docs/design/tracker.md, "Flight recorder".
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.loader import Loaded
from latencyprobe_agent.kernel.maps import possible_cpus
from latencyprobe_agent.kernel.newest import Newest
from latencyprobe_agent.kernel.tracking import Knobs, TrackerPrograms
from latencyprobe_agent.signals.trackers import RECORDER, Tracker
from latencyprobe_agent.vocabulary.records import RECORDED_VALUE

BYTES_PER_CPU = 3 << 19  # 1.5 MiB
SLOT_BYTES = RECORDED_VALUE.itemsize + 8  # with its lock
CONTENTS = {
    "syscalls": ("enter", "exit", "ended", "executed"),
    "switches": ("switched",),
    "wakeups": ("waking",),
}


class Copied(NamedTuple):
    """One CPU's newest events, `values` (RECORDED_VALUE), oldest first: all from `from_ns` to `to_ns` (boot time) but
    those that are `missing`. `overwritten`: older ones, since the start."""

    cpu: int
    values: NDArray[np.void]
    from_ns: int
    to_ns: int
    overwritten: int
    missing: int


class RecorderPrograms(TrackerPrograms):
    """The recorder, attached. Calls that are slower than `knobs.threshold_ns` have a record, as of `syscalls`."""

    @classmethod
    def start(
        cls,
        folder: Path,
        knobs: Knobs,
        contents: frozenset[str],
        *,
        calls_trigger: bool = True,
        bytes_per_cpu: int = BYTES_PER_CPU,
    ) -> Self:
        """Load and attach what keeps `contents` (of CONTENTS). `calls_trigger`: it tells of slow calls, too.

        Raises Unsupported or AbiMismatch, as `Attached.load()` does.
        """
        wanted = set(contents) | ({"syscalls"} if calls_trigger else set())
        unwanted = [event for what, events in CONTENTS.items() if what not in wanted for event in events]
        sizes = {"newest": max(bytes_per_cpu // SLOT_BYTES, 1) * possible_cpus()}
        if not (calls_trigger and knobs.stacks):
            unwanted.append("blocked")
            sizes["tracked_stacks"] = 4096
        if "syscalls" not in contents:
            knobs = replace(knobs, keep_above_ns=2**64 - 1)
        if not calls_trigger:
            knobs = replace(knobs, threshold_ns=2**64 - 1, stacks=type(knobs.stacks)(0))
        row = replace(RECORDER, left_out=tuple(unwanted))
        loaded = cls.load(folder / f"{RECORDER.name}.bpf.o", row, None, sizes=sizes)
        return cls(loaded, row, knobs)

    def __init__(self, loaded: Loaded, tracker: Tracker, knobs: Knobs) -> None:
        super().__init__(loaded, tracker, knobs)
        self._newest = Newest(self.map("newest"), self.map("newest_heads"), RECORDED_VALUE)
        self._began_ns = _now_ns()

    def copy(self) -> list[Copied]:
        """Return what is kept of each CPU that has had an event."""
        copies = (self._copy(cpu) for cpu in range(possible_cpus()))
        return [copy for copy in copies if len(copy.values) or copy.overwritten]

    def _copy(self, cpu: int) -> Copied:
        to_ns = _now_ns()
        values, overwritten, missing = self._newest.kept(cpu)
        from_ns = self._began_ns
        if overwritten:
            from_ns = int(values["record"]["time_ns"][0]) if len(values) else to_ns
        return Copied(cpu, values, from_ns, to_ns, overwritten, missing)


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
