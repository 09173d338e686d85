"""Trackers in tests: a row of the table, attached and drained, each record with its stacks; processes of a cgroup."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.kernel.tracking import Knobs, TrackerPrograms
from latencyprobe_agent.measure.calls_in_progress import CallsInProgress, Stacks
from latencyprobe_agent.signals.trackers import Tracker
from latencyprobe_agent.symbols.kallsyms import Kallsyms
from latencyprobe_agent.vocabulary.records import TrackedFlag
from tests.support.waiting import wait_until
from tests.truth.recorder import OBJECTS
from tests.truth.workload import build

MS = 1_000_000
Found = list[tuple[np.void, Stacks]]


class Tracked:
    """What a tracker tells: all that it has reported so far, each with its stacks."""

    def __init__(self, programs: TrackerPrograms) -> None:
        self.programs = programs
        self.calls = CallsInProgress()
        self._found: Found = []

    def found(self, *flags: TrackedFlag) -> Found:
        """Those with one of these flags, without any: what has ended."""
        while len(batch := self.programs.drain()):
            self.calls.keep(self.programs.stacks())
            self._found += self.calls.ended(batch)
        return [one for one in self._found if one[0]["flag"] in (flags or (TrackedFlag.NORMAL,))]

    def until(self, condition: Callable[[Found], object], what: str) -> Found:
        """What has ended, once `condition` holds of it."""
        wait_until(lambda: condition(self.found()), what, seen=lambda: (self.found(), self.programs.told()))
        return self.found()


@contextmanager
def tracking(tracker: Tracker, knobs: Knobs, **options: int) -> Iterator[Tracked]:
    """Attach a row. `options`: of `TrackerPrograms.open()`."""
    with TrackerPrograms.open(OBJECTS, tracker, knobs, **options) as programs:
        yield Tracked(programs)


@contextmanager
def cgroup(name: str) -> Iterator[Path]:
    """A cgroup of its own; whoever is left in it is killed at the end."""
    folder = find_root() / f"latencyprobe-test-{name}"
    folder.mkdir()
    try:
        yield folder
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            subprocess.run(["kill", "-9", pid], check=False)
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} is empty")
        folder.rmdir()


def start_in(folder: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    """Start a program in a cgroup, in which it is from its first instruction on."""
    enter = f'echo $$ > "{folder}/cgroup.procs"; exec "$@"'
    command = ["sh", "-c", enter, "sh", *words]
    return subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload, no-any-return]


def blocked(*words: object) -> list[str]:
    """The command line of a mode of blocked.c."""
    return [str(build("blocked")), *map(str, words)]


class Names:
    """Names of kernel addresses; the symbols are read once."""

    _symbols: Kallsyms | None = None

    @classmethod
    def of(cls, addresses: Sequence[int]) -> list[str]:
        cls._symbols = cls._symbols or Kallsyms()
        return [cls._symbols.name(address) or "[unknown]" for address in addresses]
