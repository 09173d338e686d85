"""Points of metrics per target, role and owner: from the kernel's counts, from records, from evidence.

Pure: receives counts or series, and a plan; returns points. A target set is of several targets, and each of them gets
points of its own. Counts are exact even when records were lost. `exemplars`: EXEMPLAR[2] by series, those of the
kernel's durations included.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe import slo_events
from latencyprobe.plan import NodePlan, PlannedObjective, Target
from latencyprobe.slo.windows import WINDOW_S
from latencyprobe.spec import goal_fraction
from latencyprobe_agent.measure.counts import Counts
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.telemetry.evidence_series import EvidenceSeries
from latencyprobe_agent.telemetry.exemplars import NO_EXEMPLARS, merged
from latencyprobe_agent.telemetry.owner_cap import OTHERS
from latencyprobe_agent.telemetry.points import Histogram, Labels, Point
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, Group, RecordHistograms, Series
from latencyprobe_agent.telemetry.slo_events import SloEvents
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import (
    HISTOGRAM_MIN,
    HISTOGRAM_SCALE,
    ExchangeClass,
    Excluded,
    Outcome,
    Role,
)
from latencyprobe_agent.vocabulary.values import ERRORS

Exemplars = Mapping[Series, NDArray[np.void]]


class _Key(NamedTuple):
    target: str
    role: Role
    owner: int


def duration_of(role: Role) -> names.Metric:
    """Return the metric that has the durations of RPCs as one end sees them."""
    return names.SERVER_DURATION if role is Role.SERVER else names.CLIENT_DURATION


def count_points(
    counts: Counts,
    plan: NodePlan,
    sets: Mapping[int, TargetSet],
    slo: SloEvents,
    exemplars: Exemplars,
) -> Iterator[Point]:
    """Yield durations, exchanges, failures, exclusions and SLO events of every target of the plan."""
    targets = {target.id: target for target in plan.targets}
    for key, rows in _by_target(counts, targets, sets).items():
        target = targets[key.target]
        values = counts.values[rows]
        labels = target_labels(target)
        duration = duration_of(key.role)
        of_sets = (
            Series(duration, Group(index, key.role, key.owner), "")
            for index in counts.keys["target_set"][rows].tolist()
        )
        histogram = Histogram(
            values["histogram"].sum(axis=0, dtype=np.int64),
            *(HISTOGRAM_MIN, HISTOGRAM_SCALE, 0),
            int(values["duration_sum_ns"].sum()) / 1e9,
            merged([exemplars.get(series, NO_EXEMPLARS) for series in of_sets]),
        )
        yield Point(key.owner, duration, labels, histogram)
        role: Labels = (*labels, (names.ROLE, key.role.name.lower()))
        for metric, field, kind, label in (
            (names.EXCHANGES, "classes", ExchangeClass, names.CLASS),
            (names.EXCLUDED, "excluded", Excluded, names.REASON),
        ):
            for index, count in enumerate(values[field].sum(axis=0).tolist()):
                if count:
                    yield Point(key.owner, metric, (*role, (label, kind(index).name.lower())), count)
        for index, count in enumerate(values["outcomes"].sum(axis=0).tolist()):
            if count and index != Outcome.OK:
                error = ERRORS[Outcome(index)].type
                yield Point(key.owner, names.FAILURES, (*role, (names.ERROR_TYPE, error)), count)
        for events in slo.of(target.id, Counts(counts.keys[rows], values)):
            of_objective = definition_labels(labels, events.objective)
            for outcome, count in ((slo_events.GOOD, events.good), (slo_events.BAD, events.bad)):
                with_outcome = (*of_objective, (names.OUTCOME, outcome))
                yield Point(key.owner, names.SLO_EVENTS, with_outcome, count, events.start_unix_ns)


def objective_points(observed: object, plan: NodePlan) -> Iterator[Point]:
    """Yield what each objective of the plan asks for: its events alone do not tell how many may be bad."""
    targets = {target.id: target for target in plan.targets}
    for objective in plan.objectives:
        if target := targets.get(objective.target):
            labels = _objective_labels(target_labels(target), objective)
            threshold_s = target.thresholds_ns[objective.threshold_index] / 1e9
            yield Point(observed, names.SLO_GOAL, labels, float(goal_fraction(objective.goal)))
            yield Point(observed, names.SLO_THRESHOLD, labels, threshold_s)
            if window_s := WINDOW_S.get(objective.window):  # an operator of a later release may have others
                yield Point(observed, names.SLO_WINDOW, labels, window_s)


def record_points(
    histograms: RecordHistograms,
    plan: NodePlan,
    sets: Mapping[int, TargetSet],
    exemplars: Exemplars,
) -> Iterator[Point]:
    """Yield stages, round trips, network and peer durations of every target of the plan."""
    targets = {target.id: target for target in plan.targets}
    merged: dict[tuple[object, names.Metric, Labels], Histogram] = {}
    for series, counted in histograms.series():
        histogram = counted._replace(exemplars=exemplars.get(series, NO_EXEMPLARS))
        for target in _targets(series.group, targets, sets):
            labels = (*target_labels(target), (names.ROLE, series.group.role.name.lower()))
            if series.metric is names.STAGE_DURATION:
                labels = (*labels, (names.STAGE, series.detail))
            elif series.metric is names.PEER_DURATION:
                labels = (*labels, (names.SERVICE_PEER_NAME, series.detail))
            elif (
                series.metric is names.NETWORK_DURATION
            ):  # of remotely joined pairs only slow ones are known: kept apart
                labels = (*labels, (names.JOINED, series.detail))
            key = (series.group.owner, series.metric, labels)
            merged[key] = _sum(merged[key], histogram) if key in merged else histogram
    for (owner, metric, labels), histogram in merged.items():
        yield Point(owner, metric, labels, histogram)
        if metric is names.NETWORK_DURATION:
            pairs = int(histogram.counts.sum()) + histogram.zero
            yield Point(owner, names.PAIRS, labels, pairs)


def evidence_points(evidence: EvidenceSeries, plan: NodePlan, sets: Mapping[int, TargetSet]) -> Iterator[Point]:
    """Yield the metrics of evidence of every target of the plan."""
    targets = {target.id: target for target in plan.targets}
    merged: dict[tuple[int, names.Metric, Labels], int | float | Histogram] = {}
    for series, value in evidence.series():
        for target in _targets(series.group, targets, sets):
            labels = (*target_labels(target), (names.ROLE, series.group.role.name.lower()), *series.labels)
            key = (series.group.owner, series.metric, labels)
            before = merged.get(key)
            if isinstance(value, Histogram):
                merged[key] = _sum(before, value) if isinstance(before, Histogram) else value
            else:
                merged[key] = value + (before if isinstance(before, int | float) else 0)
    for (owner, metric, labels), value in merged.items():
        yield Point(owner, metric, labels, value)


def target_labels(target: Target) -> Labels:
    """Return the labels that every point of a target carries. The resource of an owner that nobody knows, or of several
    folded into one, has no namespace, and LatencyProbes of several may have the same name."""
    of_probe = ((names.PROBE, target.probe), (names.PROBE_NAMESPACE, target.namespace))
    return (*of_probe, (names.TARGET, target.name))


def definition_labels(of_target: Labels, objective: PlannedObjective) -> Labels:
    """Return the labels of an objective's events, but for the outcome. `of_target`: its target's."""
    return (*_objective_labels(of_target, objective), (names.DEFINITION, objective.hash))


def _objective_labels(of_target: Labels, objective: PlannedObjective) -> Labels:
    perspective = slo_events.perspective(objective.perspective)
    return (*of_target, (names.OBJECTIVE, objective.name), (names.PERSPECTIVE, perspective))


def _by_target(counts: Counts, targets: Mapping[str, Target], sets: Mapping[int, TargetSet]) -> dict[_Key, list[int]]:
    """Return the rows of `counts` by target, role and owner."""
    rows: dict[_Key, list[int]] = {}
    keys = counts.keys
    for row, (owner, index, role) in enumerate(
        zip(keys["owner"].tolist(), keys["target_set"].tolist(), keys["role"].tolist(), strict=True)
    ):
        for target in _targets(Group(index, Role(role), owner), targets, sets):
            key = _Key(target.id, Role(role), OTHER_OWNER if owner == OTHERS else owner)
            rows.setdefault(key, []).append(row)
    return rows


def _targets(group: Group, targets: Mapping[str, Target], sets: Mapping[int, TargetSet]) -> Iterable[Target]:
    if group.role is Role.UNKNOWN or group.target_set not in sets:
        return ()
    return [targets[name] for name in sets[group.target_set].targets if name in targets]


def _sum(one: Histogram, other: Histogram) -> Histogram:
    return one._replace(
        counts=one.counts + other.counts,
        zero=one.zero + other.zero,
        sum_s=one.sum_s + other.sum_s,
        exemplars=merged([one.exemplars, other.exemplars]),
    )
