"""Take snapshots while a tracker and the recorder run: on its records, or because somebody asks. One file each."""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from latencyprobe.errors import OutputError
from latencyprobe.text import UNKNOWN
from latencyprobe_agent.kernel.recording import Copied, RecorderPrograms
from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.measure.calls_in_progress import Stacks
from latencyprobe_agent.recording import taking
from latencyprobe_agent.recording.snapshot import VERSION, Cpu, Header, Snapshot, Trigger, Waited, encode, layout
from latencyprobe_agent.symbols.symbolizer import Symbolizer, inside_calls
from latencyprobe_agent.tools import rows
from latencyprobe_agent.tools.offcpu import reason
from latencyprobe_agent.tools.syscalls import syscall
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.vocabulary.comm import comm
from latencyprobe_agent.vocabulary.returned import returned
from latencyprobe_agent.vocabulary.syscalls import name as call_name

SUFFIX = ".lprec"


@dataclass(frozen=True)
class Recording:
    """What a recorder is asked for: `on`, the tracker that triggers; `contents`: what it keeps, above `above_ns`;
    `most`: snapshots, None: no end."""

    on: str
    knobs: Knobs
    window_ns: int
    contents: tuple[str, ...]
    above_ns: int
    folder: Path
    most: int | None


@dataclass(frozen=True)
class Taken:
    """A snapshot that was written."""

    file: Path
    snapshot: Snapshot


class Snapshots:
    """Writes at most one snapshot a second; counts the triggers that have none. `losses`: what is not kept, by reason,
    since the start."""

    def __init__(
        self,
        asked: Recording,
        programs: RecorderPrograms,
        symbols: Symbolizer,
        losses: Callable[[], dict[str, int]],
    ) -> None:
        self._asked = asked
        self._programs = programs
        self._symbols = symbols
        self._losses = losses
        self._pace = taking.Pace()
        self.taken = self.suppressed = 0

    @property
    def full(self) -> bool:
        """Whether there are as many as were asked for."""
        return self.taken == self._asked.most

    def of_record(self, record: np.void, stacks: Stacks, offset_ns: int) -> Taken | None:
        """Take one because of a tracker's record (TRACKED); None: it comes too soon. `offset_ns`: Unix less boot time.

        Raises OutputError.
        """
        return self._take(
            lambda: self._trigger(record, stacks), int(record["start_ns"] + record["duration_ns"]), offset_ns
        )

    def on_request(self, offset_ns: int) -> Taken | None:
        """Take one now; None: it comes too soon. Raises OutputError."""
        now_ns = _now_ns()
        return self._take(lambda: Trigger(time_ns=now_ns), now_ns, offset_ns)

    def _take(self, trigger: Callable[[], Trigger], at_ns: int, offset_ns: int) -> Taken | None:
        if not self._pace.allows(_now_ns()):
            self.suppressed += 1
            return None
        copied = self._programs.copy()  # before anything that takes time: what is old is overwritten meanwhile
        since_ns = at_ns - self._asked.window_ns
        inside = [taking.window(one.values, _cpu(one), since_ns) for one in copied]
        events = [of for _, of in inside]
        asked, whose = self._asked, self._asked.knobs
        header = Header(
            version=VERSION,
            trigger=trigger(),
            unix_offset_ns=offset_ns,
            window_ns=asked.window_ns,
            contents=list(asked.contents),
            keep_above_ns=asked.above_ns,
            cpus=[cpu for cpu, _ in inside],
            fields=layout(),
            host=platform.node(),
            kernel=platform.release(),
            tgid=whose.tgid,
            cgroup_id=whose.cgroup_id,
            comm=whose.comm,
            calls=taking.calls(events, call_name),
            idle=sorted(whose.left_out),
            suppressed=self._pace.told(),
            lost=self._losses(),
        )
        snapshot = Snapshot(header, events)
        self.taken += 1
        return Taken(self._write(snapshot), snapshot)

    def _trigger(self, record: np.void, stacks: Stacks) -> Trigger:
        tgid, start_ns, on = int(record["tgid"]), int(record["start_ns"]), self._asked.on
        user = self._symbols.user(tgid, inside_calls(stacks.user), taken_ns=start_ns) if stacks.user else []
        return Trigger(
            time_ns=start_ns + int(record["duration_ns"]),
            tracker=on,
            what=syscall(record) if on == "syscalls" else reason(record) if on == "offcpu" else "",
            returned=returned(int(record["ret"])) if on == "syscalls" else "",
            comm=comm(record["comm"]),
            tgid=tgid,
            tid=int(record["tid"]),
            start_ns=start_ns,
            duration_ns=int(record["duration_ns"]),
            kernel_stacks=[Waited(ns, names) for ns, names in rows.waits(stacks.kernel, self._symbols)],
            user_stack=user,
            user_stack_complete=stacks.user_complete and UNKNOWN not in user,
        )

    def _write(self, snapshot: Snapshot) -> Path:
        """Write it whole or not at all, under the moment of its trigger."""
        header = snapshot.header
        moment = timestamp(header.trigger.time_ns + header.unix_offset_ns).replace(":", "")
        file = next(self._names(moment))
        unfinished = file.with_name(f".{file.name}.unfinished")
        try:
            unfinished.write_bytes(encode(snapshot))
            unfinished.rename(file)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise OutputError(f"{file}: {error.strerror}") from error
        return file

    def _names(self, moment: str) -> Iterator[Path]:
        """Yield names that no file has; the wall clock may have stepped back."""
        number = 0
        while True:
            file = self._asked.folder / f"{moment}{f'-{number}' if number else ''}{SUFFIX}"
            if not file.exists():
                yield file
            number += 1


def _cpu(one: Copied) -> Cpu:
    return Cpu(one.cpu, 0, one.from_ns, one.to_ns, one.overwritten, one.missing)


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
