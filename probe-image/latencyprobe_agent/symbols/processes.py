"""A process's executable mappings, and its files, opened so that its owner cannot lead us elsewhere."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from latencyprobe_agent.kernel.openat2 import open_beneath

_MAPS_BYTES = 8 << 20
_FILE_BYTES = 4 << 30
_DELETED = " (deleted)"
# As perf has them (tools/perf/util/map.c), and memory with a name.
_NO_FILE = ("[anon:", "[anon_shmem:", "[heap]", "[stack", "/memfd:", "/dev/zero", "/anon_hugepage", "//anon", "/SYSV")


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A file that is not read. `args[0]`: the reason, one word."""


class Mapping(NamedTuple):
    """One executable mapping. `path` is as the process's own namespace has it; empty: no file."""

    start: int
    end: int
    file_offset: int
    device: int
    inode: int
    path: str

    @property
    def called(self) -> str:
        """The file's name without its folders."""
        return self.path.removesuffix(_DELETED).rpartition("/")[2]

    @property
    def made_at_run_time(self) -> bool:
        """Whether it is memory that the process itself has filled, though the memory may have a name."""
        return not self.path or self.path.startswith(_NO_FILE)


class Process:
    """A process, held by a descriptor: another one that gets its number is not it. Raises OSError once it has ended."""

    def __init__(self, proc: Path, tgid: int) -> None:
        self._folder = os.open(proc / str(tgid), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._root = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._folder, self._root):
            if descriptor >= 0:
                os.close(descriptor)

    def mappings(self) -> list[Mapping]:
        """Return the executable ones, by address."""
        return list(executable(self._read("maps", _MAPS_BYTES)))

    def inner_pid(self) -> int:
        """Return its number in its own namespace. Raises OSError: it has gone, or may not be looked into."""
        for line in self._read("status", 1 << 16).splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
        raise ProcessLookupError

    def began_ns(self) -> int:
        """Return when it was started, in boot time, 10 ms early at most: the kernel tells ticks."""
        after_name = self._read("stat", 1 << 12).rpartition(b")")[2].split()
        return int(after_name[19]) * 10**9 // os.sysconf("SC_CLK_TCK")

    @contextmanager
    def file(self, path: str, mapped: Mapping | None = None) -> Iterator[int]:
        """Open a regular file inside of the process's root for reading.

        `mapped`: it must be this mapping's. Raises Refused or OSError.
        """
        if self._root < 0:
            self._root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        found = open_beneath(self._root, path)  # a path only: nothing is opened yet, no device, no FIFO
        try:
            _check(os.fstat(found), mapped)
            descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        finally:
            os.close(found)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _read(self, name: str, most: int) -> bytes:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        pieces, size = [], 0
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            while size < most and (piece := file.read(1 << 16)):
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)


def executable(text: bytes) -> Iterator[Mapping]:
    """Yield the executable mappings that /proc/PID/maps lists."""
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 5 or fields[1][2:3] != b"x":
            continue
        with suppress(ValueError):
            start, _, end = fields[0].partition(b"-")
            major, _, minor = fields[3].partition(b":")
            path = fields[5].decode(errors="surrogateescape").replace("\\012", "\n") if len(fields) > 5 else ""
            device = os.makedev(int(major, 16), int(minor, 16))
            yield Mapping(int(start, 16), int(end, 16), int(fields[2], 16), device, int(fields[4]), path)


def _check(status: os.stat_result, mapped: Mapping | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused("no_regular_file")
    if status.st_size > _FILE_BYTES:
        raise Refused("size")
    if mapped is None:
        return
    if status.st_ino != mapped.inode:
        raise Refused("another_file")
    # Overlays and btrfs tell mappings and files different devices without a number of their own.
    if os.major(status.st_dev) and os.major(mapped.device) and status.st_dev != mapped.device:
        raise Refused("another_file")
