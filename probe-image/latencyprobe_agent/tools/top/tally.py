"""What the RPCs of an interval add up to, by target, end, process and peer. Pure.

Receives halves batch by batch, returns sums. Work and memory go by groups, never by exchanges; groups beyond a bound
are one. Sampled records count with their adjusted count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.slo.histogram import quantile_ns
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS, Outcome, Role

MAX_GROUPS = 4096  # of 4.4 kB each
_NOBODY = (0, b"")  # process and peer of all that found no room


class Group(NamedTuple):
    """Whose RPCs: target set, end, process that reads and writes at this end, packed address of the other one."""

    target_set: int
    role: Role
    tgid: int
    peer: bytes


@dataclass
class Sums:
    """Of one group: RPCs, those that failed, buckets of durations, ns by stage."""

    rpcs: int = 0
    failed: int = 0
    buckets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(HISTOGRAM_BUCKETS, np.int64))
    stages_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, np.int64))

    def quantile_ns(self, q: str) -> int:
        """Return a quantile of the durations, within 1.1 %."""
        return quantile_ns(histogram.sparse(self.buckets), Fraction(q)) or 0


class Tally:
    """Adds up until `take()`."""

    def __init__(self) -> None:
        self._sums: dict[Group, Sums] = {}

    def add(self, halves: Halves) -> None:
        """Add the SLI events among these halves."""
        some = halves if halves.counted.all() else halves.take(halves.counted)
        if not len(some):
            return
        rec = some.rec
        tgid = np.where(rec["role"] == Role.SERVER, rec["reader_tgid"], rec["writer_tgid"])
        packed = np.ascontiguousarray(rec["peer_addr"]).view(np.uint64)
        found = groups([rec["target_set"], rec["role"], tgid, packed[:, 0], packed[:, 1]])
        weight, failed = some.adjusted_count, rec["outcome"] != Outcome.OK
        place, many = histogram.positions(some.duration_ns), len(found.first)
        rpcs = _by_group(found.of_row, weight, many)
        lost = _by_group(found.of_row, weight * failed, many)
        stages = [_by_group(found.of_row, weight * some.stages[:, i], many) for i in range(4)]
        order = np.argsort(found.of_row, kind="stable")
        ends = np.cumsum(np.bincount(found.of_row, minlength=many))
        for g, row in enumerate(found.first.tolist()):
            mine = order[ends[g - 1] if g else 0 : ends[g]]
            sums = self._of(
                Group(int(rec["target_set"][row]), Role(rec["role"][row]), int(tgid[row]), bytes(rec["peer_addr"][row]))
            )
            sums.rpcs += int(rpcs[g])
            sums.failed += int(lost[g])
            sums.stages_ns += [int(stage[g]) for stage in stages]
            np.add.at(sums.buckets, place[mine], weight[mine])

    def _of(self, group: Group) -> Sums:
        if group not in self._sums and len(self._sums) >= MAX_GROUPS:
            group = Group(group.target_set, group.role, *_NOBODY)
        return self._sums.setdefault(group, Sums())

    def take(self) -> Mapping[Group, Sums]:
        """Return the sums since the last call."""
        taken, self._sums = self._sums, {}
        return taken


def _by_group(group: NDArray[np.intp], values: NDArray[np.int64], many: int) -> NDArray[Any]:
    # float64 is exact up to 2^53 ns: 104 days of durations in one batch
    return np.bincount(group, weights=values, minlength=many)
