"""Which process holds a socket, for tools: by the socket's inode among the descriptors in /proc.

The kernel's record names the process that connected; of an accepted socket, or one older than the tool, only the inode.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from latencyprobe_agent.kernel.hooks import has_the_kernels_numbers

_SHARE = 10  # of its time a tool spends at most a tenth on looking for owners


class Owners:
    """Processes by socket inode; each search of `proc` remembers all sockets that it comes across. None are found where
    they have other numbers than the kernel's."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._found: dict[int, int] = {}
        self._again = 0.0 if has_the_kernels_numbers(proc) else math.inf

    def find(self, inodes: Iterable[int]) -> dict[int, int]:
        """Return inode → process id of those that some process holds, as far as is known."""
        asked = {inode for inode in inodes if inode}
        before = time.monotonic()
        if asked - self._found.keys() and before >= self._again:
            self._found = dict(self._search())
            after = time.monotonic()
            self._again = after + _SHARE * (after - before)
        return {inode: self._found[inode] for inode in asked & self._found.keys()}

    def _search(self) -> Iterator[tuple[int, int]]:
        for process in os.scandir(self._proc):
            if not process.name.isdigit():
                continue
            with suppress(OSError):  # it has ended
                for descriptor in (Path(process.path) / "fd").iterdir():
                    with suppress(OSError):
                        target = str(descriptor.readlink())
                        if target.startswith("socket:["):
                            yield int(target[8:-1]), int(process.name)
