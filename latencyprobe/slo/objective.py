"""An objective as the evaluation and the store see it: which counts it has, and what they are judged by.

Made from a LatencyProbe by agent (standalone) and operator, kept in the store beside the counts. Pure.
"""

from typing import NamedTuple

import msgspec

from latencyprobe import planning, spec
from latencyprobe.plan import Role
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
    return ObjectiveKey(row.namespace, row.probe, row.probe_uid, row.objective, row.hash, row.perspective)


def objectives(probe: LatencyProbe) -> tuple[Objective, ...]:
    """Return the objectives of a LatencyProbe, in its order."""
    return tuple(
        Objective(
            key=ObjectiveKey(
                *(probe.namespace, probe.name, probe.uid, o.name),
                *(planning.objective_hash(probe, o), planning.perspective(probe, o)),
            ),
            target=o.target,
            threshold_ns=spec.duration_ns(o.threshold),
            goal=o.goal,
            window=o.window,
            min_events=o.min_events,
            errors_count_as_bad=o.errors_count_as_bad,
        )
        for o in probe.spec.objectives
    )
