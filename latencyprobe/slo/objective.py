"""An objective as the evaluation and the store see it: which counts it has, and what they are measured by.

Made from a LatencyProbe by agent (standalone) and operator, kept in the store beside the counts. It says what
`plan.PlannedObjective` says to the nodes that count, without what only these need. Pure.
"""

from functools import partial
from operator import attrgetter
from typing import NamedTuple, Self

import msgspec

from latencyprobe import planning
from latencyprobe.plan import PlannedObjective, Role, Target
from latencyprobe.sli import SliRow
from latencyprobe.spec import LatencyProbe


class ObjectiveKey(NamedTuple):
    """Identity of one series of counts; the fields of a SliRow. A new definition has a new `hash`, a new series."""

    namespace: str
    probe: str
    probe_uid: str
    objective: str
    hash: str
    perspective: Role

    @classmethod
    def of(cls, target: Target, planned: PlannedObjective) -> Self:
        """Return the series that the nodes of a plan count for an objective of `target`."""
        return cls(
            *(target.namespace, target.probe, target.probe_uid), *(planned.name, planned.hash, planned.perspective)
        )


_key = attrgetter(*ObjectiveKey._fields)  # of each row that comes


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One objective. `goal` in percent and `window` as in the spec; `threshold_ns` in ns."""

    key: ObjectiveKey
    target: str
    threshold_ns: int
    goal: str
    window: str
    min_events: int
    errors_count_as_bad: bool


def key_of(row: SliRow) -> ObjectiveKey:
    """Return the series that a row's counts belong to."""
    return ObjectiveKey._make(_key(row))


def objectives(probe: LatencyProbe) -> tuple[Objective, ...]:
    """Return the objectives of a LatencyProbe, in its order."""
    targets = {target.id: target for target in map(partial(planning.target, probe), probe.spec.targets)}
    return tuple(_objective(targets[planned.target], planned) for planned in planning.objectives(probe))


def _objective(target: Target, planned: PlannedObjective) -> Objective:
    return Objective(
        key=ObjectiveKey.of(target, planned),
        target=target.name,
        threshold_ns=target.thresholds_ns[planned.threshold_index],
        goal=planned.goal,
        window=planned.window,
        min_events=planned.min_events,
        errors_count_as_bad=planned.errors_count_as_bad,
    )
