"""LatencyReports: from the store's figures to the documents that the API server gets.

A namespace's report is owned by all its LatencyProbes, so that it goes with the last one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from latencyprobe.report import build, model
from latencyprobe.slo.objective import Objective, ObjectiveKey, objectives
from latencyprobe.spec import LatencyProbe
from latencyprobe.store import Counts, Store
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.owners import reference

Document = dict[str, Any]


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


def evaluate(
    store: Counts | None,
    owners: list[LatencyProbe],
    now_unix_s: int,
    nodes_missing: Mapping[ObjectiveKey, int],
    incomplete: str = "",
) -> Document:
    """Return the LatencyReport of one namespace, whose LatencyProbes are `owners`. `incomplete`: as of `build`."""
    judged = [objective for owner in owners for objective in objectives(owner)]
    return document(build.build(store, judged, now_unix_s, nodes_missing, incomplete), owners)


def document(report: model.Report, owners: list[LatencyProbe]) -> Document:
    """Return a report as the API server gets it, owned by its namespace's LatencyProbes."""
    whole: Document = msgspec.to_builtins(build.document(owners[0].namespace, report))
    references = [reference(owner) for owner in owners]
    metadata = {"name": build.NAME, "namespace": owners[0].namespace, "ownerReferences": references}
    return whole | {"metadata": metadata}


def differs(new: Document, old: Document | None) -> bool:
    """Return whether a report is another one, times of evaluation aside."""
    return old is None or _timeless(new) != _timeless(old)


def _timeless(report: Mapping[str, Any]) -> Document:
    results = [{k: v for k, v in r.items() if k != "updated"} for r in report.get("results", ())]
    return {**{k: v for k, v in report.items() if k != "updated"}, "results": results}
