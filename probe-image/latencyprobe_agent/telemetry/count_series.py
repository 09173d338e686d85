"""The kernel's counts as points: of each owner until its last counts are exported, of each objective from its start.

With them goes what held up the owners' containers.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.measure.counts import NO_COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.telemetry.metric_points import count_points
from latencyprobe_agent.telemetry.points import Point
from latencyprobe_agent.telemetry.pressure_series import PressureSeries
from latencyprobe_agent.telemetry.slo_events import SloEvents
from latencyprobe_agent.vocabulary.now import Now


class CountSeries:
    """`series_cap`: owners per target; the rest is folded into `other`."""

    def __init__(self, series_cap: int) -> None:
        self._series_cap = series_cap
        self._slo = SloEvents()
        self._counts = NO_COUNTS
        self._living = NO_COUNTS
        self._exported: dict[int, int] = {}
        self._pressure = PressureSeries()

    def follow(self, in_force: InForce, now: Now) -> None:
        """Take a new plan. Objectives that were not in force before start from the last snapshot."""
        first = self._counts is NO_COUNTS
        self._slo.follow(in_force.plan, in_force.rules, self._counts, 0 if first else now.unix_ns)

    def add(self, snapshot: Snapshot, pressure: Mapping[int, Stall]) -> None:
        """Take the counts as they are now, and what held up the containers of their owners."""
        self._slo.forget(snapshot.let_go)
        self._counts, self._living = snapshot.counts, snapshot.living
        self._pressure.add(pressure, snapshot.living.keys["owner"].tolist())

    def ended(self, resources: Resources) -> set[int]:
        """Return the owners that have ended and whose last counts have been exported: their series end as they did.

        To be asked once per export: it remembers what this one exports.
        """
        seen = self._living.values["outcomes"].sum(axis=1) + self._living.values["excluded"].sum(axis=1)
        now: dict[int, int] = {}
        for owner, count in zip(self._living.keys["owner"].tolist(), seen.tolist(), strict=True):
            now[owner] = now.get(owner, 0) + count
        over = {owner for owner, n in now.items() if self._exported.get(owner) == n and resources.ended(owner)}
        self._exported = now
        return over

    def points(self, in_force: InForce, without: set[int]) -> Iterator[Point]:
        """Yield the points of all owners but these."""
        kept = ~np.isin(self._living.keys["owner"], np.array(sorted(without), np.uint64))
        counts = Counts(self._living.keys[kept], self._living.values[kept])
        yield from count_points(counts, in_force.plan, in_force.rules.sets, self._slo, self._series_cap)
        yield from self._pressure.points(without)
