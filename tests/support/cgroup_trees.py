"""Trees of cgroups as nodes have them, in a folder: what kernel, driver and hierarchy make of one container.

Folders as the drivers systemd and cgroupfs name them, files as kernels write them: version 2, and hybrid, with the CPU
controller in a hierarchy of version 1 beside the tree.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

UID = "0a1b2c3d-1111-2222-3333-444455556666"
ID = "ab" * 32
_SLICE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
PRESSURE = "some avg10=1.12 avg60=0.37 avg300=0.08 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


class Tree(NamedTuple):
    """One node. `unified`: the root of the version 2 tree; `path`: of the container's cgroup in each hierarchy, below
    that of its pod; `cpu`: the root of the hierarchy in which the CPU controller is."""

    unified: Path
    cpu: Path
    path: str

    @property
    def container(self) -> Path:
        """The container's folder in the version 2 tree."""
        return self.unified / self.path[1:]

    @property
    def pod(self) -> Path:
        """The pod's folder there."""
        return self.container.parent

    def throttle(self, periods: int, throttled: int, us: int, *, level: str = "container") -> None:
        """Say so in cpu.stat of the container or the `pod`."""
        folder = self.cpu / (self.path if level == "container" else self.path.rpartition("/")[0])[1:]
        if self.cpu == self.unified:
            usage = "usage_usec 8123456\nuser_usec 7000000\nsystem_usec 1123456\nnice_usec 0\n"
            quota = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {us}\nnr_bursts 0\nburst_usec 0\n"
            told = usage + quota
        else:
            told = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {us * 1000 + 357}\n"
        (folder / "cpu.stat").write_text(told)

    def press(self, **us: int) -> None:
        """Say in the container's pressure files for how long it waited for a resource; fully half as long."""
        for resource, some in us.items():
            (self.container / f"{resource}.pressure").write_text(PRESSURE.format(some=some, full=some // 2))


def _version_2(root: Path, path: str) -> Tree:
    tree = Tree(root, root, path)
    tree.container.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    for folder in (tree.container, tree.pod):
        (folder / "cpu.max").write_text("50000 100000\n")
    return tree


def systemd(root: Path) -> Tree:
    """Version 2, systemd driver."""
    return _version_2(root, f"/{_SLICE}/cri-containerd-{ID}.scope")


def cgroupfs(root: Path) -> Tree:
    """Version 2, cgroupfs driver."""
    return _version_2(root, f"/kubepods/burstable/pod{UID}/{ID}")


def hybrid(root: Path) -> Tree:
    """Version 2 without controllers, beside hierarchies of version 1."""
    tree = Tree(root / "unified", root / "cpu,cpuacct", f"/kubepods/burstable/pod{UID}/{ID}")
    for hierarchy in (tree.unified, tree.cpu):
        (hierarchy / tree.path[1:]).mkdir(parents=True)
    (tree.unified / "cgroup.controllers").write_text("\n")
    (tree.cpu / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    for folder in (tree.cpu / tree.path[1:], (tree.cpu / tree.path[1:]).parent):
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    return tree


TREES: Mapping[str, Callable[[Path], Tree]] = {"systemd": systemd, "cgroupfs": cgroupfs, "hybrid": hybrid}
