"""Boot time to Unix time, at one place; and when the host slept.

Stamps and durations are ns of CLOCK_BOOTTIME, which never steps; only the offset to Unix time follows the wall clock.
"""

import time
from collections import deque
from collections.abc import Callable

from latencyprobe_agent.measure.halves import Sleep
from latencyprobe_agent.vocabulary.now import Now

_TRIES = 5
_SLEW = 500e-6  # the fastest that adjtimex lets the wall clock drift without a step (kernel/time/ntp.c, MAXFREQ)
READING_ERROR_NS = 100_000
_SLEEPS = 64
_SHORTEST_SLEEP_NS = 1_000_000


def _read_boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Clock:
    """Offset between boot time and Unix time. The readers can be replaced for tests."""

    def __init__(self, boot_ns: Callable[[], int] = _read_boot_ns, unix_ns: Callable[[], int] = time.time_ns) -> None:
        self._boot_ns = boot_ns
        self._unix_ns = unix_ns
        self._sampled_ns, self.offset_ns = self._sample()

    def _sample(self) -> tuple[int, int]:
        """Read both clocks, several times; the reading with the shortest way round is the truest."""
        readings = []
        for _ in range(_TRIES):
            before, unix, after = self._boot_ns(), self._unix_ns(), self._boot_ns()
            readings.append((after - before, before, unix - (before + after) // 2))
        _, boot, offset = min(readings)
        return boot, offset

    def now(self) -> Now:
        """Return this moment on both clocks."""
        boot_ns = self._boot_ns()
        return Now(boot_ns, boot_ns + self.offset_ns)

    def resample(self) -> int:
        """Follow the wall clock. Return by how many ns it stepped since the last sample; 0 if it only drifted."""
        boot, offset = self._sample()
        moved, allowed = offset - self.offset_ns, READING_ERROR_NS + _SLEW * (boot - self._sampled_ns)
        self._sampled_ns, self.offset_ns = boot, offset
        return moved if abs(moved) > allowed else 0

    def to_unix(self, boot_ns: int) -> int:
        """Convert a stamp; an i64 array is converted as `stamps + clock.offset_ns`."""
        return boot_ns + self.offset_ns


def boot_offset_ns(
    boot_ns: Callable[[], int] = _read_boot_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
) -> int:
    """Return boot time less monotonic time: how long the host has slept, 0 if never. Wrong by some ns, as far as
    reading two clocks one after the other goes."""
    lowest, highest = -(1 << 63), 1 << 63
    for _ in range(_TRIES):
        before, monotonic, after = boot_ns(), monotonic_ns(), boot_ns()
        lowest, highest = max(lowest, before - monotonic), min(highest, after - monotonic)
    return 0 if lowest <= 0 <= highest else (lowest + highest) // 2


class Sleeps:
    """When the host was suspended: boot time goes on then, monotonic time stands still. `known`: the latest ones."""

    def __init__(
        self, boot_ns: Callable[[], int] = _read_boot_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.known: deque[Sleep] = deque(maxlen=_SLEEPS)
        self._boot_ns = boot_ns
        self._monotonic_ns = monotonic_ns
        self._seen_ns, self._asleep_ns = self._sample()

    def _sample(self) -> tuple[int, int]:
        """Return boot time, and how long the host has slept since it booted."""
        for _ in range(_TRIES):
            before, monotonic, after = self._boot_ns(), self._monotonic_ns(), self._boot_ns()
            if after - before < READING_ERROR_NS:
                break
        return after, before - monotonic

    def watch(self) -> None:
        """Look whether it slept since the last look."""
        seen, asleep = self._sample()
        if asleep - self._asleep_ns >= _SHORTEST_SLEEP_NS:
            self.known.append(Sleep(self._seen_ns, seen, asleep - self._asleep_ns))
        self._seen_ns, self._asleep_ns = seen, asleep
