"""A moment on both clocks, read once and handed on: stamps are boot time, what leaves the host is Unix time."""

from typing import NamedTuple


class Now(NamedTuple):
    """`boot_ns`: CLOCK_BOOTTIME, which never steps; `unix_ns`: the same moment in Unix time."""

    boot_ns: int
    unix_ns: int

    @property
    def boot_s(self) -> float:
        """Boot time in seconds."""
        return self.boot_ns / 1e9

    @property
    def offset_ns(self) -> int:
        """What turns a stamp into Unix time by addition."""
        return self.unix_ns - self.boot_ns
