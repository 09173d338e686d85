"""The kernel's counts as points: of each owner until its last counts are exported, of each objective from its start.

With them goes what held up the owners' containers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set

import numpy as np

from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.measure.counts import NO_COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.telemetry.counts_since import CountsSince
from latencyprobe_agent.telemetry.metric_points import Exemplars, count_points
from latencyprobe_agent.telemetry.owner_cap import OwnerCap
from latencyprobe_agent.telemetry.points import Point
from latencyprobe_agent.telemetry.pressure_series import PressureSeries
from latencyprobe_agent.telemetry.shared_room import payer
from latencyprobe_agent.telemetry.slo_events import SloEvents
from latencyprobe_agent.vocabulary.now import Now

_ROW = 4  # series: a row has two histograms' memory, and some ten points of an export
_NOTHING = -1  # in place of a count: whatever there is has not been exported


class CountSeries:
    """`series`: owners per target set, `node_series`: series of the node; the rest is folded into `other`."""

    def __init__(self, series: int, node_series: int) -> None:
        self.cap = OwnerCap(series, node_series // _ROW)
        self._since = CountsSince()
        self._slo = SloEvents()
        self._living = NO_COUNTS
        self._exported: dict[int, int] = {}
        self._pressure = PressureSeries()
        self._held: Mapping[int, int] = {}

    def follow(self, in_force: InForce, now: Now, anew: Set[int] = frozenset()) -> None:
        """Take a new plan. Objectives that were not in force before start from the last snapshot, and so does all of
        the target sets `anew` (their numbers)."""
        start_unix_ns = 0 if self._living is NO_COUNTS else now.unix_ns
        folded = self.cap.fold(self._living)
        self._slo.forget(self._since.begin_anew(folded, anew))
        self.cap.follow(in_force, self._living, anew)
        self._slo.follow(in_force.plan, in_force.rules, self._since.of(folded), start_unix_ns)

    def stepped_back(self, unix_ns: int) -> None:
        """Let nothing count from later than this moment, which the wall clock has stepped back to."""
        self._slo.stepped_back(unix_ns)

    def add(self, snapshot: Snapshot, pressure: Mapping[int, Stall]) -> None:
        """Take the counts as they are now, and what held up the containers of their owners."""
        if len(snapshot.let_go):
            self.cap.fold(self._living)
            self.cap.forget(snapshot.let_go)
        self._slo.forget(snapshot.let_go)
        self._since.forget(snapshot.let_go)
        self._living = snapshot.living
        self._held = snapshot.held
        self._pressure.add(pressure, snapshot.living.keys["owner"].tolist())

    def keys(self, in_force: InForce) -> dict[str, int]:
        """Return how many keys of the kernel's table each namespace has."""
        found = Counter({target.namespace: 0 for target in in_force.plan.targets})
        for number, keys in self._held.items():
            found[payer(in_force.rules.sets, number)[0]] += keys
        return found

    @property
    def owners(self) -> set[int]:
        """Return the owners that the kernel's table has."""
        return set(self._living.keys["owner"].tolist())

    def gone(self) -> set[int]:
        """Return the owners that have left since the last export: of one that comes again nothing is known.

        To be asked before `ended`, once per export.
        """
        return self._exported.keys() - self.owners

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

    def withheld(self, owners: set[int]) -> None:
        """Take note of owners that this export leaves out: their last counts are not out yet."""
        self._exported.update(dict.fromkeys(owners & self._exported.keys(), _NOTHING))

    def points(self, in_force: InForce, without: set[int], exemplars: Exemplars) -> Iterator[Point]:
        """Yield the points of all owners but these."""
        folded = self.cap.told(self._since.of(self.cap.fold(self._living)))
        kept = ~np.isin(folded.keys["owner"], np.array(sorted(without), np.uint64))
        counts = Counts(folded.keys[kept], folded.values[kept])
        yield from count_points(counts, in_force.plan, in_force.rules.sets, self._slo, exemplars)
        yield from self._pressure.points(without)
