"""Reads once a second what held up the containers that exchanges were counted for.

Only owners of counts are read, so the work grows with what is targeted and has traffic. A container that ends is let
go; what its cgroup does not tell is no 0: the kind is absent, counted in `unread` and logged once.
"""

import errno
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from latencyprobe import pressure
from latencyprobe.errors import Unsupported
from latencyprobe.variants import LACKING, of_pressure
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.identity.pressure import CgroupFiles, Hierarchies, Place, Reading, find_hierarchies
from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.measure.pressure import Stall, gained

_log = logging.getLogger(__name__)
_CONTAINERS = 512  # read at most; 20 to 25 us each, 7 files
_LACKS = {
    pressure.THROTTLED: "no CPU controller can be seen",
    **dict.fromkeys(("cpu", "memory", "io"), "the kernel keeps no pressure (PSI): boot it with psi=1"),
}


class _Container:
    def __init__(self, files: CgroupFiles) -> None:
        self.files = files
        self.first: Reading | None = None
        self.last: Reading | None = None


class PressureReader:
    """`unread`: owners of the last reading of which nothing is known, by reason (`no_cgroup`, `limit`), and those that
    lack a kind, by kind."""

    def __init__(self, cgroup_root: Path | None = None) -> None:
        self.unread: Counter[str] = Counter()
        self._root = cgroup_root
        self._hierarchies: Hierarchies | None = None
        self._places: dict[int, Place] = {}
        self._open: dict[Place, _Container] = {}
        self._told: dict[str, str] = {}

    @property
    def variants(self) -> Mapping[str, str]:
        """What tells of each kind of pressure: `cgroup1`, `cgroup2`, `psi`, or `unsupported`; empty before anything was
        read."""
        return {of_pressure(kind): variant for kind, variant in self._told.items()}

    def read(self, owners: Iterable[int], resources: Resources) -> Mapping[int, Stall]:
        """Return what each owner's container was held up by since the reading before. Owner 0 are those that ended."""
        owners = set(owners) - {0}
        unread: Counter[str] = Counter()
        self._places = self._located(owners, resources)
        self._let_go(set(self._places.values()))
        stalls: dict[Place, Stall | None] = {}
        for place in self._places.values():
            if place not in stalls and (reason := self._opened(place)):
                unread[reason] += 1
            elif place not in stalls:
                stalls[place] = self._stall(place)
        unread["no_cgroup"] += len(owners) - len(self._places)
        found = {owner: stall for owner, place in self._places.items() if (stall := stalls.get(place))}
        for kind in pressure.BY_NAME:
            unread[kind] = sum(kind not in stall.us for stall in found.values())
        self.unread = +unread
        if found:
            self._tell({kind for stall in found.values() for kind in stall.us})
        return found

    def close(self) -> None:
        """Close all files."""
        self._let_go(set())

    def _located(self, owners: set[int], resources: Resources) -> dict[int, Place]:
        known = {owner: place for owner, place in self._places.items() if owner in owners}
        for owner in sorted(owners - known.keys()):
            if (place := resources.place(owner)) is not None:
                known[owner] = place
        return known

    def _let_go(self, kept: set[Place]) -> None:
        for place in self._open.keys() - kept:
            self._open.pop(place).files.close()

    def _opened(self, place: Place) -> str:
        """Open a container's files, if they are not; return why that cannot be, empty if they are open."""
        if place in self._open:
            return ""
        if len(self._open) >= _CONTAINERS:
            return "limit"
        try:
            files = CgroupFiles(self._found(), place)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return "limit"
            raise
        if files.empty:
            return "no_cgroup"
        self._open[place] = _Container(files)
        return ""

    def _stall(self, place: Place) -> Stall | None:
        """Return what the time since the last reading brought, None at the first and once the cgroup is gone."""
        container = self._open[place]
        now = container.files.read()
        if now is None:
            self._open.pop(place).files.close()
            return None
        before, container.last = container.last, now
        if container.first is None or before is None:
            container.first = now
            return None
        return gained(place.unified or place.cpu, container.first, before, now)

    def _found(self) -> Hierarchies:
        if self._hierarchies is None:
            try:
                self._hierarchies = find_hierarchies(find_root(self._root))
            except Unsupported:  # version 1 alone has quotas too
                self._hierarchies = find_hierarchies(None)
        return self._hierarchies

    def _tell(self, read: set[str]) -> None:
        for kind in pressure.BY_NAME:
            quota = f"cgroup{self._found().version}" if kind == pressure.THROTTLED else "psi"
            told = quota if kind in read else LACKING
            if told == LACKING and kind not in self._told:
                _log.warning("reports do not say how long containers were %s: %s",
                             pressure.BY_NAME[kind].told, _LACKS[kind])  # fmt: skip
            self._told[kind] = told
