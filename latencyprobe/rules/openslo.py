"""Objectives as SLOs of OpenSLO (openslo/v1), each with its indicator inside. Pure.

Source of the names' form: https://github.com/OpenSLO/OpenSLO, "General Schema" (RFC 1123 labels).
"""

import hashlib
from collections.abc import Iterable

from latencyprobe.rules import counters, wording
from latencyprobe.rules.documents import Document
from latencyprobe.slo.objective import Objective, objectives
from latencyprobe.spec import LatencyProbe, goal_fraction

_LONGEST = 63


def slos(probes: Iterable[LatencyProbe]) -> list[Document]:
    """Return one object for each objective."""
    return [Document(_object(objective)) for probe in probes for objective in objectives(probe)]


def _object(objective: Objective) -> dict[str, object]:
    key = objective.key
    name = _name(key.namespace, key.probe, key.objective)
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {"name": name},
        "spec": {
            "description": wording.described(objective),
            "service": _name(key.namespace, key.probe),
            "indicator": {"metadata": {"name": name}, "spec": {"ratioMetric": _ratio(objective)}},
            "timeWindow": [{"duration": objective.window, "isRolling": True}],
            "budgetingMethod": "Occurrences",
            "objectives": [{"target": float(goal_fraction(objective.goal))}],
        },
    }


def _ratio(objective: Objective) -> dict[str, object]:
    return {
        "counter": True,
        "bad": _source(f"sum({counters.bad(objective)})"),
        "total": _source(f"sum({counters.total(objective)})"),
    }


def _source(query: str) -> dict[str, object]:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}


def _name(*parts: str) -> str:
    """Return one label of several: OpenSLO has no namespaces. A digest keeps apart what `-` alone would not."""
    digest = hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]
    return f"{'-'.join(parts)[: _LONGEST - 9].rstrip('-')}-{digest}"
