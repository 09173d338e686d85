"""The engine of all trackers under a test's hand: a row (engine.bpf.c) in which things begin and end as it says."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.tracking import Knobs, TrackerPrograms
from latencyprobe_agent.signals.trackers import Tracker
from tests.truth.compiling import compile_bpf
from tests.truth.workload import BINARIES, HERE

ENGINE = Tracker(name="engine", title="what a test says")
_IN, _OUT = 0x4C500001, 0x4C500002


class Engine:
    """`begin()` and `end()` return what the engine does: enum begun; how many ended, or -1."""

    def __init__(self, programs: TrackerPrograms) -> None:
        self.programs = programs
        self._libc = ctypes.CDLL(None)

    def begin(self, key: bytes, *, at_ns: int, unique: bool = False) -> int:
        return self._ask(_IN, key, int(unique), at_ns)

    def end(self, key: bytes, *, at_ns: int, which: int = 0) -> int:
        return self._ask(_OUT, key, which, at_ns)

    def records(self) -> NDArray[np.void]:
        """What came since the last call."""
        return self.programs.drain()

    def _ask(self, what: int, key: bytes, value: int, at_ns: int) -> int:
        whole = ctypes.create_string_buffer(key.ljust(64, b"\0"), 64)
        failed = self._libc.prctl(what, ctypes.byref(whole), ctypes.c_ulong(value), ctypes.c_ulong(at_ns))
        assert failed == -1, "the kernel knows no such prctl"
        result = np.zeros(1, np.int64)
        self.programs.map("results").lookup(bytes(4), result.view(np.uint8).data)
        return int(result[0])


def build() -> Path:
    """Compile it; return the folder of the object."""
    made = BINARIES / "engine.bpf.o"
    made.parent.mkdir(parents=True, exist_ok=True)
    fresh = made.with_suffix(f".{os.getpid()}")
    compile_bpf(HERE / "engine.bpf.c", fresh)
    fresh.replace(made)
    return made.parent


@contextmanager
def attached(knobs: Knobs, entries: int | None = None) -> Iterator[Engine]:
    """Attach the row. `entries`: room."""
    with TrackerPrograms.open(build(), ENGINE, knobs, entries=entries) as programs:
        yield Engine(programs)
