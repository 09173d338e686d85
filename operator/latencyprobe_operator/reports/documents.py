"""LatencyReports: from the store's figures to the documents that the API server gets.

A namespace's report is owned by all its LatencyProbes, so that it goes with the last one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from latencyprobe.report import build, room
from latencyprobe.report.model import Result
from latencyprobe.report.units import unix_ns
from latencyprobe.slo.objective import Objective, ObjectiveKey, objectives
from latencyprobe.spec import LatencyProbe
from latencyprobe.store import Counts, Store
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.owners import reference

Document = dict[str, Any]

MADE_BY = f"latencyprobe {version('latencyprobe')}"
RENEW_NS = 90 * 10**9  # so at each second evaluation, before a reader takes it for stale (report/headline.py)
OWNERS = 100  # LatencyProbes that a report names as such: thousands would be more than etcd takes
SLICE = 100  # objectives that are evaluated in one go: 0.2 s of the store's thread, in which no counts are stored


class Measured(NamedTuple):
    """What is not measured that should be: on how many nodes each objective, and why a LatencyProbe is not at all.
    `lag_s`: how late counts may come."""

    nodes_missing: Mapping[ObjectiveKey, int]
    why_not: Mapping[Key, str]
    lag_s: int = 0


EVERYWHERE = Measured({}, {})


class Evaluated(NamedTuple):
    """Of one namespace: its LatencyReport, and by LatencyProbe the results of all objectives for its status, the worst
    first. Those that the report has no room for have no more than a status tells."""

    report: Document
    figures: Mapping[str, list[Document]]


def by_namespace(probes: Iterable[LatencyProbe]) -> dict[str, list[LatencyProbe]]:
    """Group LatencyProbes by namespace."""
    grouped: defaultdict[str, list[LatencyProbe]] = defaultdict(list)
    for probe in probes:
        grouped[probe.namespace].append(probe)
    return grouped


def define(store: Store, probes: Iterable[LatencyProbe]) -> None:
    """Keep the store's definitions equal to the LatencyProbes': new and changed ones in, deleted ones retired."""
    desired = {(p.namespace, p.name): objectives(p) for p in probes}
    stored: defaultdict[Key, list[Objective]] = defaultdict(list)
    for objective in store.objectives():
        stored[objective.key.namespace, objective.key.probe].append(objective)
    for key in sorted(desired.keys() | stored.keys()):
        if set(stored.get(key, ())) != set(desired.get(key, ())):
            store.define(*key, desired.get(key, ()))


def evaluate(store: Counts, owners: list[LatencyProbe], now_unix_s: int, measured: Measured = EVERYWHERE) -> Evaluated:
    """Evaluate one namespace, whose LatencyProbes are `owners`, in one go."""
    return evaluated(judged(store, owners, now_unix_s, measured), owners)


def slices(owners: Iterable[LatencyProbe]) -> Iterator[list[LatencyProbe]]:
    """Yield LatencyProbes in order, with at most SLICE objectives together; one that has more alone."""
    some: list[LatencyProbe] = []
    objectives_of_some = 0
    for owner in owners:
        if some and objectives_of_some + len(owner.spec.objectives) > SLICE:
            yield some
            some, objectives_of_some = [], 0
        some.append(owner)
        objectives_of_some += len(owner.spec.objectives)
    if some:
        yield some


def judged(
    store: Counts | None,
    owners: Iterable[LatencyProbe],
    now_unix_s: int,
    measured: Measured,
    incomplete: str = "",
) -> list[room.Verdict]:
    """Evaluate the objectives of LatencyProbes. `incomplete`: as of `build.judged`."""
    owners = list(owners)
    found = (objective for owner in owners for objective in objectives(owner))
    verdicts = build.judged(store, found, now_unix_s, measured.nodes_missing, incomplete, lag_s=measured.lag_s)
    why_not = {one.name: measured.why_not.get((one.namespace, one.name), "")[: build.MAX_REASON] for one in owners}
    return [(rank, msgspec.structs.replace(one, not_measured=why_not[one.probe])) for rank, one in verdicts]


def evaluated(verdicts: Iterable[room.Verdict], owners: list[LatencyProbe]) -> Evaluated:
    """Return the LatencyReport of a namespace as the API server gets it, owned by its LatencyProbes, and what their
    statuses tell."""
    verdicts = sorted(verdicts, key=lambda verdict: verdict[0])
    report = _report(owners[0].namespace, verdicts, [reference(owner.name, owner.uid) for owner in owners])
    figures: defaultdict[str, list[Document]] = defaultdict(list)
    for result in report["results"]:
        figures[result["probe"]].append(result)
    for _, omitted in verdicts[len(report["results"]) :]:
        figures[omitted.probe].append(_of_status(omitted))
    return Evaluated(report, dict(figures))


def _of_status(result: Result) -> Document:
    """Return what a status tells of a result."""
    return {
        "objective": result.objective,
        "state": result.state.value,
        "reason": result.reason,
        "sli": result.sli,
        "errorBudgetRemaining": result.error_budget_remaining,
        "quantiles": {"p99": result.quantiles.p99} if result.quantiles else None,
        "badByStage": [{"stage": worst.stage} for worst in result.bad_by_stage[:1]],
    }


def without_results(refused: Mapping[Key, str]) -> dict[str, Document]:
    """Return the LatencyReports of namespaces, by name, whose LatencyProbes are all refused (key: uid): none of the
    results from before is true any more."""
    references: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for (namespace, name), uid in refused.items():
        references[namespace].append(reference(name, uid))
    return {namespace: _report(namespace, (), owners) for namespace, owners in references.items()}


def _report(namespace: str, verdicts: Iterable[room.Verdict], references: list[dict[str, str]]) -> Document:
    whole: Document = msgspec.to_builtins(build.document(namespace, room.bounded(verdicts)))
    owners = sorted(references, key=itemgetter("name"))[:OWNERS]  # if these go, it is written anew for those who stay
    metadata = {"name": build.NAME, "namespace": namespace, "ownerReferences": owners}
    return whole | {"metadata": metadata, "madeBy": MADE_BY}


def differs(new: Document, old: Document | None) -> bool:
    """Return whether a report is another one, times of evaluation aside, or so much later that readers would ask who
    still evaluates; or earlier, as our clock was ahead then."""
    if old is None or _timeless(new) != _timeless(old):
        return True
    return abs(_updated_unix_ns(new) - _updated_unix_ns(old)) >= RENEW_NS


def _timeless(report: Mapping[str, Any]) -> Document:
    results = [{k: v for k, v in r.items() if k != "updated"} for r in report.get("results", ())]
    return {**{k: v for k, v in report.items() if k != "updated"}, "results": results}


def _updated_unix_ns(report: Mapping[str, Any]) -> int:
    return max((unix_ns(result["updated"]) for result in report.get("results", ())), default=0)
