"""What the kernel tells of a container's cgroup: how long its CPU quota held it up, and what it waited for (PSI).

`cpu.stat` of the container and of what is above it up to the pod, where a quota may sit as well; `cpu.pressure`,
`memory.pressure` and `io.pressure` of the container. On a hybrid host the CPU controller is in a hierarchy of version 1
beside the tree. `loop/pressure.py` reads once a second, `measure/pressure.py` makes differences of it. Formats: kernel,
Documentation/admin-guide/cgroup-v2.rst, accounting/psi.rst, scheduler/sched-bwc.rst.
"""

import errno
import os
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from latencyprobe_agent.identity.cgroups import levels

RESOURCES = ("cpu", "memory", "io")
_FILES = 8192  # open at a time: 6 to 8 of each container
# Left to everything else where the hard limit is low: programs and maps of evidence, connections, the cgroup tree.
_OTHERS = 256
_V1 = ("cpu,cpuacct", "cpu", "cpuacct,cpu")  # mounts of the controller's own hierarchy, as distributions name them


class Place(NamedTuple):
    """Paths of one container's cgroup, from the root of its hierarchy: in the version 2 tree, and where the CPU
    controller is. Empty, or the root: there is none to be read."""

    unified: str
    cpu: str


class Quota(NamedTuple):
    """`cpu.stat` of one level, growing: periods in which its tasks ran, those of them that they were throttled in, and
    for how long, added up over CPUs. `period_us`: how long a period is at most; 0 while none was throttled."""

    periods: int = 0
    throttled_periods: int = 0
    throttled_us: int = 0
    period_us: int = 0


class Reading(NamedTuple):
    """One container at `at_us` (monotonic: pressure does not grow while the host sleeps).

    `quotas`: of the container first, then of what is above it; empty where no CPU controller can be seen. `some_us`,
    `full_us`: by resource, time in which some or all of its tasks waited for it; what is absent is not known.
    """

    at_us: int
    quotas: tuple[Quota, ...]
    some_us: Mapping[str, int]
    full_us: Mapping[str, int]


class Hierarchies(NamedTuple):
    """Roots. `unified`: the version 2 tree; `cpu`: where the CPU controller is, of which `version`. None: not seen."""

    unified: Path | None
    cpu: Path | None
    version: int = 0


def find_hierarchies(unified: Path | None) -> Hierarchies:
    """Return where pressure is told. `unified`: the version 2 tree, None where there is none."""
    if unified is not None and "cpu" in _text(unified / "cgroup.controllers").split():
        return Hierarchies(unified, unified, 2)
    base = unified.parent if unified is not None else Path("/sys/fs/cgroup")
    found = next((base / name for name in _V1 if (base / name / "cpu.stat").exists()), None)
    return Hierarchies(unified, found, 1 if found else 0)


def tells_pressure(unified: Path) -> bool:
    """Return whether the kernel keeps the pressure of cgroups."""
    with suppress(OSError):
        folders = [unified, *(entry for entry in unified.iterdir() if entry.is_dir())]
        return any(_text(folder / "cpu.pressure") for folder in folders)
    return False


def place_of_process(pid: int, proc: Path = Path("/proc")) -> Place | None:
    """Return the cgroups of a process, None for one that has ended."""
    paths: dict[str, str] = {}
    for line in _text(proc / str(pid) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    if not paths:
        return None
    unified = paths.get("", "")
    return Place(unified, paths.get("cpu", unified))


class CgroupFiles:
    """The open files of one container. Raises OSError (EMFILE) where there is no room for more of them."""

    def __init__(self, hierarchies: Hierarchies, place: Place) -> None:
        self._room = _make_room()
        self._version = hierarchies.version
        self._open: list[int] = []
        try:
            self._quotas = self._open_quotas(hierarchies.cpu, place.cpu)
            self._pressure = self._open_pressure(hierarchies.unified, place.unified)
        except OSError:
            self.close()
            raise

    @property
    def empty(self) -> bool:
        """Return whether nothing tells of this container."""
        return not self._open

    def read(self) -> Reading | None:
        """Return what the kernel tells now, None once the cgroup has been removed."""
        some_us: dict[str, int] = {}
        full_us: dict[str, int] = {}
        at_us = time.monotonic_ns() // 1000
        try:
            quotas = tuple(quota.read() for quota in self._quotas)
            for name, file in self._pressure.items():
                if totals := parse_pressure(_pread(file)):
                    some_us[name] = totals["some"]
                    full_us[name] = totals.get("full", 0)  # of the CPU only from 5.13 on
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return Reading(at_us, quotas, some_us, full_us)

    def close(self) -> None:
        """Close all files."""
        for file in self._open:
            os.close(file)
        self._open = []

    def _open_quotas(self, root: Path | None, path: str) -> list["_QuotaFiles"]:
        found = []
        for level in levels(path) if root is not None else ():
            folder = f"{root}{level}"
            stat = self._file(f"{folder}/cpu.stat")
            period = self._file(f"{folder}/cpu.cfs_period_us" if self._version == 1 else f"{folder}/cpu.max")
            if stat is not None:
                found.append(_QuotaFiles(stat, period))
        return found

    def _open_pressure(self, root: Path | None, path: str) -> dict[str, int]:
        if root is None or not path.strip("/"):  # the root's pressure is the host's
            return {}
        files = {name: self._file(f"{root}{path}/{name}.pressure") for name in RESOURCES}
        return {name: file for name, file in files.items() if file is not None}

    def _file(self, path: str) -> int | None:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EACCES):
                return None
            raise
        self._open.append(file)
        if file >= self._room:  # the kernel gives the lowest number that is free
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return file


class _QuotaFiles:
    def __init__(self, stat: int, period: int | None) -> None:
        self._stat, self._period = stat, period
        self._last = Quota()

    def read(self) -> Quota:
        now = parse_cpu_stat(_pread(self._stat))
        if now.throttled_periods != self._last.throttled_periods and self._period is not None:
            # `MAX PERIOD`, in version 1 the period alone
            self._last = now._replace(period_us=int(_pread(self._period).split()[-1]))
        else:
            self._last = now._replace(period_us=self._last.period_us)
        return self._last


def parse_cpu_stat(text: str) -> Quota:
    """Return `cpu.stat`, of either version. Without its controller a cgroup of version 2 can have no quota: all 0."""
    told = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    us = int(told["throttled_usec"]) if "throttled_usec" in told else int(told.get("throttled_time", 0)) // 1000
    return Quota(int(told.get("nr_periods", 0)), int(told.get("nr_throttled", 0)), us)


def parse_pressure(text: str) -> dict[str, int]:
    """Return the totals of a pressure file in us, by `some` and `full`."""
    return {line.split(" ", 1)[0]: int(line.rpartition("total=")[2]) for line in text.splitlines()}


def _pread(file: int) -> str:
    try:
        return os.pread(file, 4096, 0).decode()
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # kernels that were booted with psi=0 may show the files all the same
            return ""
        raise


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _make_room() -> int:
    """Raise the soft limit of open files, which is 1,024 in many containers, as far as it may be. Return the first
    descriptor that is left to others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted - _OTHERS
