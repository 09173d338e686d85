"""Real cgroups of a test's own: a folder in each hierarchy that has a say, limits, and processes in it. Needs root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.identity.pressure import Hierarchies, find_hierarchies


class OwnCgroup:
    """`path`: in every hierarchy, below its root. `folder`: in the version 2 tree."""

    def __init__(self, path: str, hierarchies: Hierarchies) -> None:
        assert hierarchies.unified is not None
        assert hierarchies.cpu is not None
        self.path = path
        self.folder = hierarchies.unified / path[1:]
        self._cpu = hierarchies.cpu / path[1:]
        self._version = hierarchies.version
        self._memory = hierarchies.cpu.parent / "memory" / path[1:] if hierarchies.version == 1 else self.folder
        self._folders = list(dict.fromkeys((self.folder, self._cpu, self._memory)))
        for folder in self._folders:
            _enable(folder.parent)
            folder.mkdir()

    def __truediv__(self, name: str) -> "OwnCgroup":
        assert self.folder.parent is not None
        return OwnCgroup(f"{self.path}/{name}", find_hierarchies(find_root()))

    def limit_cpu(self, quota_us: int) -> None:
        """Give it so much of each 100 ms."""
        if self._version == 1:
            (self._cpu / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self._cpu / "cpu.max").write_text(f"{quota_us} 100000")

    def limit_memory(self, size: int) -> None:
        """Let it keep so many bytes: what is beyond is reclaimed."""
        name = "memory.limit_in_bytes" if self._version == 1 else "memory.high"
        if not (self._memory / name).exists():
            pytest.skip("no memory controller")
        (self._memory / name).write_text(str(size))

    def cap_memory(self, size: int) -> None:
        """Let it have no more than so many bytes."""
        name = "memory.limit_in_bytes" if self._version == 1 else "memory.max"
        if not (self._memory / name).exists():
            pytest.skip("no memory controller")
        (self._memory / name).write_text(str(size))

    def join(self, pid: int) -> None:
        """Put a process into it."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def cpu_stat(self) -> dict[str, int]:
        """Return what the kernel says of its quota now, as it says it."""
        return {name: int(value) for name, value in map(str.split, (self._cpu / "cpu.stat").read_text().splitlines())}

    def throttled_us(self) -> int:
        """Return its throttled time."""
        told = self.cpu_stat()
        return told["throttled_time"] // 1000 if self._version == 1 else told["throttled_usec"]

    def remove(self) -> None:
        """Remove it; its processes have ended."""
        for folder in self._folders:
            folder.rmdir()


@contextmanager
def own_cgroup(name: str = "lp") -> Iterator[OwnCgroup]:
    """Make a cgroup and remove it, with all below it, at the end."""
    hierarchies = find_hierarchies(find_root())
    if hierarchies.cpu is None:
        pytest.skip("no CPU controller")
    cgroup = OwnCgroup(f"/{name}-{os.getpid()}", hierarchies)
    try:
        yield cgroup
    finally:
        for folder in cgroup._folders:
            for below, _, _ in os.walk(folder, topdown=False):
                Path(below).rmdir()


def _enable(folder: Path) -> None:
    """Let the children of a folder of version 2 have quotas of CPU and memory."""
    available = folder / "cgroup.controllers"
    for controller in {"cpu", "memory"} & set(available.read_text().split() if available.exists() else ()):
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
