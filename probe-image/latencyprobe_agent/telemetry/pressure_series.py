"""What held up containers as points: the kernel's own figures of each cgroup, cumulative since it was first read.

Of a container, not of a target: no labels of targets, so that sums over containers are right.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.telemetry.points import Labels, Point
from latencyprobe_agent.vocabulary import conventions as names


class PressureSeries:
    """The latest of each owner of counts, also of one that has ended, until its last counts are exported."""

    def __init__(self) -> None:
        self._latest: dict[int, Stall] = {}

    def add(self, stalls: Mapping[int, Stall], living: Iterable[int]) -> None:
        """Take what was read now. `living`: owners that have counts still."""
        kept = set(living)
        self._latest = {owner: stall for owner, stall in {**self._latest, **stalls}.items() if owner in kept}

    def points(self, without: Collection[int]) -> Iterator[Point]:
        """Yield the points of all owners but these; of several owners of one container at the lowest."""
        told: set[str] = set()
        for owner, stall in sorted(self._latest.items()):
            if owner not in without and stall.container not in told:
                told.add(stall.container)
                yield from _points(owner, stall)


def _points(owner: int, stall: Stall) -> Iterator[Point]:
    own, above = stall.total.quotas[:1], stall.total.quotas[1:]
    for level, quotas in (("container", own), ("above", above)):
        labels: Labels = ((names.LEVEL, level),)
        if any(quota.periods for quota in quotas):  # without a quota there are no periods
            yield Point(owner, names.CPU_PERIODS, labels, sum(quota.periods for quota in quotas))
            throttled = sum(quota.throttled_periods for quota in quotas)
            yield Point(owner, names.CPU_THROTTLED_PERIODS, labels, throttled)
            yield Point(owner, names.CPU_THROTTLED, labels, sum(quota.throttled_us for quota in quotas) / 1e6)
    for stalled, totals in (("some", stall.total.some_us), ("full", stall.total.full_us)):
        for resource, us in totals.items():
            of_resource: Labels = ((names.RESOURCE, resource), (names.STALLED, stalled))
            yield Point(owner, names.PRESSURE, of_resource, us / 1e6)
