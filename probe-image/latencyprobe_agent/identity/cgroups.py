"""Which cgroup ids belong to which pod and container, read from the cgroup v2 tree.

For rules (which sockets are in scope) and resources (whose record it is). The id of a cgroup is its inode number, which
is what `sk->sk_cgrp_data.cgroup->kn->id` holds in the kernel. Folder names are the only identity here: labels and file
contents of a container are never read.
"""

import errno
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from latencyprobe.errors import Unsupported

_POD = re.compile(
    # static pods have a hash of 32 digits instead of a UUID; systemd writes `_` for `-`
    r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?P<rest>:.*)?$"
)
_CONTAINER = re.compile(r"(?:^|[-:])(?P<id>[0-9a-f]{64})(?:\.scope)?$")
_MONITOR = "crio-conmon-"  # CRI-O's own helper beside the container
_DEPTH = 12  # kind in Docker on systemd reaches 9
OF_POD = 1024  # cgroups of a pod that are followed; a whole node of kind inside one has some hundreds
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Cgroup(NamedTuple):
    """Owner of one cgroup. `container` is "" for the pod's own folder and what is not below a container's. `path`: the
    folder of the container, whatever it nests, else the cgroup's own; from the tree's root."""

    pod: str
    container: str
    path: str = ""


def find_root(configured: Path | None = None, mount: Path = Path("/sys/fs/cgroup")) -> Path:
    """Return the cgroup v2 tree: `configured` or `mount`, or its `unified` folder on a hybrid host.

    Raises Unsupported (CgroupV1) where only version 1 is mounted.
    """
    base = configured or mount
    for root in (base, base / "unified"):
        if (root / "cgroup.controllers").exists():
            return root
    raise Unsupported(
        "CgroupV1",
        f"{base}: no cgroup v2 tree: pods cannot be told apart here; "
        "boot with systemd.unified_cgroup_hierarchy=1, or name the v2 mount in LATENCYPROBE_CGROUP_ROOT",
    )


class CgroupTree:
    """One mount. A full walk finds the folders that hold pods; each scan lists only those and the pods in them. Both
    raise OSError where no folder can be opened for want of room: pods that nobody looked at are not gone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parents: set[str] = set()

    def survey(self) -> None:
        """Walk the whole tree for folders that hold pods: at start and now and then (a new QoS class is rare)."""
        self._parents = set(_pod_parents(str(self._root), within=False, depth=0))

    def scan(self) -> Mapping[int, Cgroup]:
        """Return the cgroups at or below each pod's folder, by id: of each pod `OF_POD`, the outermost first, and one
        more if it has more. A folder that vanishes meanwhile is left out."""
        found: dict[int, Cgroup] = {}
        for parent in tuple(self._parents):
            entries = _folders(parent)
            if entries is None:
                self._parents.discard(parent)
                continue
            of_pod: dict[str, list[os.DirEntry[str]]] = defaultdict(list)
            for entry in entries:
                if pod := _POD.search(entry.name):
                    of_pod[pod["uid"].replace("_", "-")].append(entry)
            for uid, tops in of_pod.items():
                found.update(self._of_pod(uid, tops))
        return found

    def _of_pod(self, uid: str, tops: Iterable[os.DirEntry[str]]) -> dict[int, Cgroup]:
        """Return the cgroups at or below `tops`, level by level: however many a container nests, all containers of its
        pod come before."""
        found: dict[int, Cgroup] = {}
        below: Iterable[tuple[os.DirEntry[str], Cgroup]] = ((entry, self._cgroup(uid, entry)) for entry in tops)
        for _ in range(_DEPTH + 1):
            level = list(islice(below, OF_POD + 1 - len(found)))
            found.update((entry.inode(), owner) for entry, owner in level)
            below = self._below(level)
        return found

    def _below(self, level: Iterable[tuple[os.DirEntry[str], Cgroup]]) -> Iterator[tuple[os.DirEntry[str], Cgroup]]:
        for entry, owner in level:
            for child in _folders(entry.path, OF_POD) or ():
                # the first container id on the way down wins: what a container nests belongs to it
                yield child, owner if owner.container else self._cgroup(owner.pod, child)

    def _cgroup(self, pod: str, entry: os.DirEntry[str]) -> Cgroup:
        return Cgroup(pod, _container(entry.name), entry.path.removeprefix(str(self._root)))


def levels(path: str) -> tuple[str, ...]:
    """Return a cgroup's path and those above it whose quota holds for it too: up to its pod's, else to the root's own
    children. Empty for the root, which has none."""
    found: list[str] = []
    while path.strip("/") and len(found) < _DEPTH:
        found.append(path)
        path, _, name = path.rpartition("/")
        if _POD.search(name):
            break
    return tuple(found)


def _container(name: str) -> str:
    match = None if name.startswith(_MONITOR) else _CONTAINER.search(name)
    return match["id"] if match else ""


def _pod_parents(path: str, *, within: bool, depth: int) -> Iterator[str]:
    """Yield the folders that hold pods, and those below `kubepods` that may do so later."""
    holds_pods = within
    for entry in _folders(path) or ():
        if _POD.search(entry.name):
            holds_pods = True
        elif depth < _DEPTH:
            yield from _pod_parents(entry.path, within=within or "kubepods" in entry.name, depth=depth + 1)
    if holds_pods:
        yield path


def _folders(path: str, most: int | None = None) -> list[os.DirEntry[str]] | None:
    try:
        with os.scandir(path) as entries:
            return list(islice((entry for entry in entries if entry.is_dir(follow_symlinks=False)), most))
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return None  # removed between two system calls
