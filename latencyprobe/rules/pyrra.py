"""Objectives as Pyrra's ServiceLevelObjective (pyrra.dev/v1alpha1). Pyrra makes rules and alerts of its own. Pure."""

from collections.abc import Iterable

from latencyprobe.rules import counters, wording
from latencyprobe.rules.documents import Document
from latencyprobe.slo.objective import Objective, objectives
from latencyprobe.spec import LatencyProbe


def service_level_objectives(probes: Iterable[LatencyProbe]) -> list[Document]:
    """Return one object for each objective."""
    return [Document(_object(objective)) for probe in probes for objective in objectives(probe)]


def _object(objective: Objective) -> dict[str, object]:
    key = objective.key
    return {
        "apiVersion": "pyrra.dev/v1alpha1",
        "kind": "ServiceLevelObjective",
        # a dot, which no part has in it: two objectives never share a name
        "metadata": {"name": f"{key.probe}.{key.objective}", "namespace": key.namespace},
        "spec": {
            "target": objective.goal,
            "window": objective.window,
            "description": wording.described(objective),
            "indicator": {
                "ratio": {
                    "errors": {"metric": counters.bad(objective)},
                    "total": {"metric": counters.total(objective)},
                }
            },
            "alerting": {"name": "LatencyProbeBurnRate"},
        },
    }
