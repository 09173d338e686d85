"""Boot time to Unix time, at one place. `app` resamples once a second and converts with `to_unix()`.

Stamps and durations are ns of CLOCK_BOOTTIME, which never steps; only the offset to Unix time follows the wall clock.
"""

import time
from collections.abc import Callable

_TRIES = 5
_SLEW = 500e-6  # the fastest that adjtimex lets the wall clock drift without a step (kernel/time/ntp.c, MAXFREQ)
_READING_ERROR_NS = 100_000


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

    def now_ns(self) -> int:
        """Boot time now."""
        return self._boot_ns()

    def resample(self) -> int:
        """Follow the wall clock. Return by how many ns it stepped since the last sample; 0 if it only drifted."""
        boot, offset = self._sample()
        moved, allowed = offset - self.offset_ns, _READING_ERROR_NS + _SLEW * (boot - self._sampled_ns)
        self._sampled_ns, self.offset_ns = boot, offset
        return moved if abs(moved) > allowed else 0

    def to_unix(self, boot_ns: int) -> int:
        """Convert a stamp; an i64 array is converted as `stamps + clock.offset_ns`."""
        return boot_ns + self.offset_ns
