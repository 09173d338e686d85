"""Which objectives a target set counts for, and what is good and bad to them. Pure.

The one definition for SLI rows (`sli.rows`), metrics (`telemetry.slo_events`) and the live line; the kernel counts by
the same (`within`, `failed_within` and `over_*` of `struct exchange_counts`).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, PlannedObjective, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.vocabulary.records import Outcome, Role

_ROLES = {Perspective.SERVER: Role.SERVER, Perspective.CLIENT: Role.CLIENT}


@dataclass(frozen=True)
class TrackedObjective:
    """One objective as it applies to one target set: `threshold` is its place among the set's thresholds."""

    planned: PlannedObjective
    target: Target
    role: Role
    threshold: int
    threshold_ns: int

    @property
    def key(self) -> ObjectiveKey:
        """Return the series that its counts belong to."""
        return ObjectiveKey.of(self.target, self.planned)

    def good_and_bad(self, counts: np.void) -> tuple[int, int]:
        """Return how many events of a COUNTS record are good and how many bad. Exact: no ring is involved."""
        good = int(counts["within"][self.threshold])
        if self.planned.errors_count_as_bad:
            good -= int(counts["failed_within"][self.threshold])
        return good, int(counts["outcomes"].sum()) - good

    def bad(self, duration_ns: NDArray[np.int64], outcome: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return bool[n]: which events are bad, by duration (i64[n]) and `Outcome` (u8[n]) of their records."""
        slow = self.slow(duration_ns)
        return slow | (outcome != Outcome.OK) if self.planned.errors_count_as_bad else slow

    def slow(self, duration_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return bool[n]: which events are over the threshold, so that their stages count."""
        slow: NDArray[np.bool_] = duration_ns > self.threshold_ns
        return slow


def tracked(plan: NodePlan, sets: Mapping[int, TargetSet]) -> dict[tuple[int, int], list[TrackedObjective]]:
    """Return (target set, role) → the objectives that its exchanges count for. `sets`: `Rules.sets`.

    A set from before an edit may lack a threshold that its target has now: nobody can tell how many of its exchanges
    were within that one, so it says nothing of the objective.
    """
    targets = {target.id: target for target in plan.targets}
    found: dict[tuple[int, int], list[TrackedObjective]] = defaultdict(list)
    for index, target_set in sets.items():
        for planned in plan.objectives:
            target = targets[planned.target]
            threshold_ns = target.thresholds_ns[planned.threshold_index]
            if target.id in target_set.targets and threshold_ns in target_set.thresholds_ns:
                role = _ROLES[planned.perspective]
                place = target_set.thresholds_ns.index(threshold_ns)
                found[index, role].append(TrackedObjective(planned, target, role, place, threshold_ns))
    return found
