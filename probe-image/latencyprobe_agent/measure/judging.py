"""Which objectives judge what a target set counts, and what is good and bad to them. Pure.

The one definition for SLI rows (`measure.rows`), metrics (`telemetry.metrics`) and the live line.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, Objective, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import SliRow
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.vocabulary.records import Outcome, Role

_ROLES = {Perspective.SERVER: Role.SERVER, Perspective.CLIENT: Role.CLIENT}


@dataclass(frozen=True)
class Judge:
    """One objective as it applies to one target set: `threshold` is its place among the set's thresholds."""

    objective: Objective
    target: Target
    role: Role
    threshold: int
    threshold_ns: int

    def row(self, minute: int) -> SliRow:
        """Return an empty row of this objective."""
        return SliRow(
            namespace=self.target.namespace,
            probe=self.target.probe,
            probe_uid=self.target.probe_uid,
            objective=self.objective.name,
            hash=self.objective.hash,
            perspective=self.objective.perspective,
            minute=minute,
        )

    def good_and_bad(self, counts: np.void) -> tuple[int, int]:
        """Return how many events of a COUNTS record are good and how many bad. Exact: no ring is involved."""
        good = int(counts["within"][self.threshold])
        if self.objective.errors_count_as_bad:
            good -= int(counts["failed_within"][self.threshold])
        return good, int(counts["outcomes"].sum()) - good

    def bad(self, duration_ns: NDArray[np.int64], outcome: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which events are bad, by the records of them."""
        slow: NDArray[np.bool_] = duration_ns > self.threshold_ns
        return slow | (outcome != Outcome.OK) if self.objective.errors_count_as_bad else slow


def judges(plan: NodePlan, sets: Mapping[int, TargetSet]) -> dict[tuple[int, int], list[Judge]]:
    """Return (target set, role) → who judges its exchanges. `sets`: `Rules.sets`.

    A set from before an edit may lack a threshold that its target has now: nobody can tell how many of its exchanges
    were within that one, so it says nothing of the objective.
    """
    targets = {target.id: target for target in plan.targets}
    found: dict[tuple[int, int], list[Judge]] = defaultdict(list)
    for index, target_set in sets.items():
        for objective in plan.objectives:
            target = targets[objective.target]
            threshold_ns = target.thresholds_ns[objective.threshold_index]
            if target.id in target_set.targets and threshold_ns in target_set.thresholds_ns:
                role = _ROLES[objective.perspective]
                place = target_set.thresholds_ns.index(threshold_ns)
                found[index, role].append(Judge(objective, target, role, place, threshold_ns))
    return found
