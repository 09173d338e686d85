"""A tracker in the kernel: knobs, which take effect at the next event; records, stacks, statistics and losses."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.attached import Attached, counters, u32
from latencyprobe_agent.kernel.hooks import has_the_kernels_numbers
from latencyprobe_agent.kernel.loader import Loaded
from latencyprobe_agent.kernel.maps import possible_cpus
from latencyprobe_agent.kernel.ring import Ring
from latencyprobe_agent.signals.trackers import Tracker
from latencyprobe_agent.vocabulary.records import (
    SYSCALL_WORDS,
    TRACKED_STACK,
    TRACKER_KNOBS,
    TRACKER_STATISTICS,
    StackOptionFlags,
    Told,
)

_NO_STACKS = StackOptionFlags(0)
_NO_STACKS_BYTES = 4096  # the smallest ring


@dataclass(frozen=True)
class Knobs:
    """What a tracker follows, and what it tells of. 0 and empty: all, or no such limit.

    `threshold_ns`: only what takes longer has a record; `timeout_ns`: what is open for longer is told of at once, and
    again at its end; `gc_threshold_ns`: it is given up then; `worst_only`: only what is worse than all before has a
    record; `tracking`: False forgets all and begins nothing. `tgid`, `cgroup_id`, `comm` (of the thread): whose;
    `left_out`: numbers of system calls; `at_once`: a record wakes its reader; `keep_above_ns`: what the recorder keeps.
    """

    threshold_ns: int
    timeout_ns: int = 0
    gc_threshold_ns: int = 0
    worst_only: bool = False
    tracking: bool = True
    tgid: int = 0
    cgroup_id: int = 0
    comm: str = ""
    left_out: frozenset[int] = frozenset()
    stacks: StackOptionFlags = _NO_STACKS
    records_per_second: int = 0
    stacks_per_second: int = 0
    at_once: bool = False
    keep_above_ns: int = 0

    @property
    def whose(self) -> tuple[object, ...]:
        """What decides whether something begins at all."""
        return self.tracking, self.tgid, self.cgroup_id, self.comm, self.left_out

    def packed(self, wakeup_bytes: int) -> bytes:
        """Return them as the kernel's; the process that calls is not followed, unless it is asked for, or in a PID
        namespace of its own does not know its number."""
        value = np.zeros((), TRACKER_KNOBS)
        for name in ("threshold_ns", "timeout_ns", "gc_threshold_ns", "cgroup_id", "tgid", "keep_above_ns"):
            value[name] = getattr(self, name)
        value["records_per_second"], value["stacks_per_second"] = self.records_per_second, self.stacks_per_second
        value["own_tgid"] = os.getpid() if self.tgid != os.getpid() and has_the_kernels_numbers() else 0
        value["wakeup_bytes"], value["stacks"] = 0 if self.at_once else wakeup_bytes, self.stacks
        value["tracking_on"], value["worst_threshold"] = self.tracking, self.worst_only
        comm = self.comm.encode()[:15]
        value["comm"][: len(comm)] = np.frombuffer(comm, np.uint8)
        for nr in self.left_out:
            if nr < SYSCALL_WORDS * 64:
                value["left_out"][nr // 64] |= np.uint64(1 << nr % 64)
        return value.tobytes()


class TrackerPrograms(Attached):
    """The programs of one tracker, attached."""

    @classmethod
    def open(
        cls,
        folder: Path,
        tracker: Tracker,
        knobs: Knobs,
        *,
        ring_bytes: int | None = None,
        entries: int | None = None,
    ) -> Self:
        """Load and attach what these knobs need; `folder`: of the compiled objects, `entries`: room for what is open.

        Raises Unsupported or AbiMismatch, as `Attached.load()` does.
        """
        wanted = {flag.name.lower() for flag in knobs.stacks if flag.name}
        unwanted = tuple(event for what, event in tracker.on_request if what not in wanted)
        sizes = {"entries": entries} if entries else {}
        if tracker.stacks and not knobs.stacks:
            sizes["tracked_stacks"] = _NO_STACKS_BYTES
        signal = replace(tracker, left_out=unwanted)
        path = folder / f"{tracker.name}.bpf.o"
        return cls(cls.load(path, signal, ring_bytes, sizes=sizes), signal, knobs)

    def __init__(self, loaded: Loaded, tracker: Tracker, knobs: Knobs) -> None:
        super().__init__(loaded, tracker)
        self._stacks: Ring | None = None
        if tracker.stacks:
            ring = self.map("tracked_stacks")
            self._stacks = Ring.open(ring.fd, ring.max_entries, TRACKED_STACK)
        self._knobs = knobs
        self._write()

    def close(self) -> None:
        """Detach and free everything."""
        if self._stacks:
            self._stacks.close()
        super().close()

    def turn(self, **knobs: object) -> None:
        """Turn these knobs, from the next event on. Where others are followed now, what is open is forgotten.

        Kernel stacks and the waker are only to be had where they were asked for when the programs were attached.
        """
        before, self._knobs = self._knobs, replace(self._knobs, **knobs)  # type: ignore[arg-type]
        self._write()
        if self._knobs.whose != before.whose:
            self.forget()
        if self._knobs.worst_only and not before.worst_only:
            self.map("worst").update(u32(0), bytes(self.map("worst").value_size))

    def forget(self) -> None:
        """Forget all that is open."""
        entries = self.map("entries")
        for key in list(entries.keys()):
            entries.delete(key)

    def size(self) -> int:
        """Return how many entries there are."""
        return len(list(self.map("entries").keys()))

    def stacks(self) -> NDArray[np.void]:
        """Return the stacks (TRACKED_STACK) that have come. Those of a record are there once the record is drained."""
        batches: list[NDArray[np.void]] = []
        while self._stacks and len(batch := self._stacks.drain()):
            batches.append(batch)
        return np.concatenate(batches) if batches else np.empty(0, TRACKED_STACK)

    def told(self) -> dict[str, int]:
        """Return what there is to tell beside the records (`enum told`, in lower case), since the start."""
        return counters(self.map("told"), Told)

    def statistics(self) -> NDArray[np.void]:
        """Return TRACKER_STATISTICS by kind, of all that has ended since the start: CPUs added up."""
        table = self.map("statistics")
        found = np.zeros(table.max_entries, TRACKER_STATISTICS)
        per_cpu = np.zeros(possible_cpus(), TRACKER_STATISTICS)
        for kind in range(len(found)):
            table.lookup(u32(kind), per_cpu.view(np.uint8).data)
            if len(seen := per_cpu[per_cpu["count"] > 0]):
                total = found[kind : kind + 1]
                total["count"], total["total_ns"] = seen["count"].sum(), seen["total_ns"].sum()
                total["min_ns"], total["max_ns"] = seen["min_ns"].min(), seen["max_ns"].max()
        return found

    def _write(self) -> None:
        self.map("knobs").update(u32(0), self._knobs.packed(self.ring_bytes // 4))
