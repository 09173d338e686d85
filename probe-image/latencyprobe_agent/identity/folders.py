"""Where the pods of this node's plan are in the cgroup tree, looked for anew as they come and go."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from latencyprobe.errors import Unsupported
from latencyprobe.plan import NodePlan
from latencyprobe_agent.identity.cgroups import Cgroup, CgroupTree, find_root

LATE_S = 60.0  # a running container that has no cgroup by then is not about to have one: two surveys


class PodFolders:
    """`configured`: the tree's root, None for the usual one. Times are s of `clock`."""

    def __init__(
        self, configured: Path | None, survey_interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._configured = configured
        self._survey_interval_s = survey_interval_s
        self._clock = clock
        self._root: Path | None = None
        self._tree: CgroupTree | None = None
        self._surveyed_s = 0.0
        self._missed_s: float | None = None

    def scan(self) -> Mapping[int, Cgroup]:
        """Return the cgroups of all pods. Raises Unsupported where there is no tree of version 2, OSError where it
        cannot be read for want of room."""
        now_s = self._clock()
        if self._tree is None:
            self._root = find_root(self._configured)
            self._tree, self._surveyed_s = CgroupTree(self._root), now_s - self._survey_interval_s
        if now_s - self._surveyed_s >= self._survey_interval_s:
            self._tree.survey()
            self._surveyed_s = now_s
        return self._tree.scan()

    def found(self, plan: NodePlan, pods: Mapping[str, list[int]]) -> None:
        """Take note of which of a plan's pods have cgroups (`pods`: ids by uid)."""
        none = not pods and any(container.id for pod in plan.pods for container in pod.containers)
        self._missed_s = (self._clock() if self._missed_s is None else self._missed_s) if none else None

    @property
    def problem(self) -> Unsupported | None:
        """Why nobody is measured: pods run, and not one of them has had a cgroup here for a minute."""
        if self._missed_s is None or self._clock() - self._missed_s < LATE_S:
            return None
        return Unsupported(
            "PodsNotFound",
            f"{self._root}: none of this node's target pods has a cgroup in this tree of version 2: their runtime uses "
            "version 1 alone: boot with systemd.unified_cgroup_hierarchy=1; or agent.cgroupPath of the chart is not "
            "the node's /sys/fs/cgroup",
        )
