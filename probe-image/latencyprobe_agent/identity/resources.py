"""Owner of a count or record → OpenTelemetry resource: the observed container or process, never the agent.

In a cluster the owner is a cgroup id, standalone a process id (`struct counts_key` in bpf/events.h). What is not known
is not guessed: it gets `unknown_service`.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, Pod
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.pressure import Place, place_of_process
from latencyprobe_agent.identity.process_name import process_name
from latencyprobe_agent.vocabulary import conventions as names

UNKNOWN_SERVICE = "unknown_service"  # OpenTelemetry's own name for it
_ENDED = 4096  # about 1 kB each
_PROCESSES = 4096  # names kept; a host that starts more in one run forgets the oldest


@cache
def sdk() -> dict[str, str]:
    """Return what describes the agent in a workload's resource: who made the telemetry."""
    return {
        names.SDK_NAME: "latencyprobe",
        names.SDK_LANGUAGE: "python",
        names.SDK_VERSION: version("latencyprobe"),
    }


class Resources(Protocol):
    """What names an owner. `by_process`: owners are process ids, not cgroup ids."""

    by_process: bool

    def attributes(self, owner: int) -> Mapping[str, str | int]:
        """Return the resource attributes of `owner`; `unknown_service` and the node for one nobody knows."""

    def ended(self, owner: int) -> bool:
        """Return whether `owner` is gone for good."""

    def whose(self, owners: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return u64[n] for u64[n]: what a container nests is the container's. So no two owners have one resource."""
        return owners

    def place(self, owner: int) -> Place | None:
        """Return where the pressure on `owner` can be read, None where nobody knows."""


class FakeResources(Resources):
    """`Resources` for tests: owner 7 is the process 7 of the service `service-7`. `gone`: owners that have ended."""

    def __init__(self, *, by_process: bool = False) -> None:
        self.by_process = by_process
        self.gone: set[int] = set()

    def attributes(self, owner: int) -> Mapping[str, str | int]:
        """Name any owner."""
        return {names.SERVICE_NAME: f"service-{owner}", names.PROCESS_PID: owner}

    def ended(self, owner: int) -> bool:
        """Tell whether it is one of `gone`."""
        return owner in self.gone

    def place(self, owner: int) -> Place | None:
        """Know of none."""
        return None


class PodResources:
    """Containers of the plan's pods, by cgroup id. Replaced as a whole when the plan or the cgroups change.

    `before`: those that these replace: of them, containers that have ended keep their names, for counts and records
    that come late. The kernel never gives a cgroup id to another cgroup (it grows by one with each).
    """

    by_process = False

    def __init__(self, plan: NodePlan, cgroups: Mapping[int, Cgroup], before: "PodResources | None" = None) -> None:
        self._unknown = {
            names.SERVICE_NAME: UNKNOWN_SERVICE,
            names.SERVICE_INSTANCE_ID: plan.node,
            names.K8S_NODE_NAME: plan.node,
            **sdk(),
        }
        self._ended = dict(before.named()) if before else {}
        self._cgroups = cgroups
        self._pods = {pod.uid: pod for pod in plan.pods}
        self._pod_of = {container.id: pod for pod in plan.pods for container in pod.containers}
        self._known: dict[int, Mapping[str, str | int]] = {}
        self._nested: Mapping[int, int] = self._nested_below(before._nested if before else {})

    def attributes(self, owner: int) -> Mapping[str, str | int]:
        """Return the attributes of the container whose cgroup is `owner`, or is above it."""
        found = self._known.get(owner)
        if found is None:
            found = self._known[owner] = self._look_up(owner)
        return found

    def ended(self, owner: int) -> bool:
        """Return whether the cgroup is gone."""
        return owner not in self._cgroups

    def whose(self, owners: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return u64[n], for each owner the container's own cgroup if that nests it, also when it is gone; the pod's
        for what is in no container."""
        if not self._nested:
            return owners
        distinct, of_row = np.unique(owners, return_inverse=True)
        return np.array([self._nested.get(owner, owner) for owner in distinct.tolist()], np.uint64)[of_row]

    def place(self, owner: int) -> Place | None:
        """Return the container's cgroup, whose path is the same in every hierarchy."""
        cgroup = self._cgroups.get(owner)
        return Place(cgroup.path, cgroup.path) if cgroup else None

    def named(self) -> Mapping[int, Mapping[str, str | int]]:
        """Return the attributes of the owners that have a name, of the latest 4,096: also of those that nobody has
        asked for, as who asks may come when they have ended."""
        for owner in self._cgroups:
            self.attributes(owner)
        known = {**self._ended, **{o: found for o, found in self._known.items() if found is not self._unknown}}
        return dict(list(known.items())[-_ENDED:])

    def pod_cgroups(self) -> dict[str, list[int]]:
        """Return cgroup ids by pod uid, for the pods of the plan only."""
        ids: dict[str, list[int]] = {}
        for cgroup_id, cgroup in self._cgroups.items():
            pod = self._pod(cgroup)
            if pod is not None:
                ids.setdefault(pod.uid, []).append(cgroup_id)
        return ids

    def _nested_below(self, before: Mapping[int, int]) -> dict[int, int]:
        """Return the outermost cgroup of each container by those below it; of those `before` that are gone, or
        whose pod has left the plan, the latest 4,096."""
        outermost: dict[tuple[str, str], int] = {}
        found = {
            cgroup_id: first
            for cgroup_id, cgroup in self._cgroups.items()
            if self._pod(cgroup) and (first := outermost.setdefault(cgroup[:2], cgroup_id)) != cgroup_id
        }
        left = [one for one in before.items() if one[0] not in found]
        return {**dict(left[-_ENDED:]), **found}

    def _pod(self, cgroup: Cgroup) -> Pod | None:
        # A static pod's folder bears another uid than its mirror in the API: the container id finds it.
        return self._pods.get(cgroup.pod) or self._pod_of.get(cgroup.container)

    def _look_up(self, owner: int) -> Mapping[str, str | int]:
        cgroup = self._cgroups.get(owner)
        pod = self._pod(cgroup) if cgroup else None
        if cgroup is None or pod is None:
            return self._ended.get(owner, self._unknown)
        container = next((c for c in pod.containers if c.id == cgroup.container), None)
        own, name = (container.resource, container.name) if container else ({}, cgroup.container)
        attributes = {**pod.resource, **own, **sdk()}  # the instance may be there, by the pod's annotation
        instance = ".".join(part for part in (pod.namespace, pod.name, name) if part)
        attributes = {names.SERVICE_NAME: pod.name, names.SERVICE_INSTANCE_ID: instance, **attributes}
        if container is not None:
            attributes[names.K8S_CONTAINER_NAME] = container.name
        if cgroup.container:  # one that the plan does not know (yet) is told by its folder
            attributes[names.CONTAINER_ID] = cgroup.container
        return attributes


class ProcessResources:
    """Processes of this host, by process id. A name is read at first sight: the process may end before its record."""

    by_process = True

    def __init__(self, host: str, proc: Path = Path("/proc")) -> None:
        self._host = host
        self._proc = proc
        self._known: dict[int, Mapping[str, str | int]] = {}

    def attributes(self, owner: int) -> Mapping[str, str | int]:
        """Return the attributes of the process `owner`."""
        found = self._known.get(owner)
        if found is None:
            if len(self._known) >= _PROCESSES:
                del self._known[next(iter(self._known))]
            found = self._known[owner] = self._look_up(owner)
        return found

    def ended(self, owner: int) -> bool:
        """Return whether the process is gone."""
        return not (self._proc / str(owner)).exists()

    def whose(self, owners: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return them as they are: a process has its own resource."""
        return owners

    def place(self, owner: int) -> Place | None:
        """Return the cgroup that the process is in."""
        return place_of_process(owner, self._proc)

    def _look_up(self, owner: int) -> Mapping[str, str | int]:
        attributes: dict[str, str | int] = {
            names.SERVICE_NAME: process_name(owner, self._proc) or UNKNOWN_SERVICE,
            names.SERVICE_INSTANCE_ID: f"{self._host}.{owner}" if owner else self._host,
            names.HOST_NAME: self._host,
            **sdk(),
        }
        if owner:
            attributes[names.PROCESS_PID] = owner
        return attributes
