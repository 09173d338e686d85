"""A LatencyReport as a Report of openreports.io, for those who collect results of all kinds there. Pure.

Source of its fields: https://github.com/openreports/reports-api, v0.2.1, apis/openreports.io/v1alpha1.
"""

import msgspec

from latencyprobe.api import API_VERSION, KIND
from latencyprobe.report import notes
from latencyprobe.report.model import LatencyReport, Result
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable
from latencyprobe_operator.cluster.owners import MANAGED_BY
from latencyprobe_operator.reports.documents import Document

NAME = "latencyprobe"
MAX_MESSAGE = 1024  # characters
RESULTS = {
    State.MET: "pass",
    State.AT_RISK: "warn",
    State.VIOLATED: "fail",
    State.INCOMPLETE: "error",  # nobody knows
    State.NO_DATA: "skip",
}


def open_report(report: Document) -> Document:
    """Return the Report of a namespace: of each result of its LatencyReport the verdict and the first words, without
    what changes while the figures do not. Its summary counts results that found no room, too."""
    found, metadata = msgspec.convert(report, LatencyReport), report["metadata"]
    kept = {name: metadata[name] for name in ("namespace", "ownerReferences")}
    return {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "latencyprobe", **MANAGED_BY}, **kept},
        "source": "latencyprobe.dev",
        "summary": {RESULTS[state]: found.summary[state.column] for state in State},
        "results": [_result(metadata["namespace"], result) for result in found.results],
    }


def _result(namespace: str, result: Result) -> Document:
    figures = {
        "target": result.target,
        "perspective": result.perspective,
        "threshold": result.threshold,
        "goal": result.goal,
        "window": result.window,
        "sli": result.sli,
        "errorBudgetRemaining": result.error_budget_remaining,
    }
    said = next((note.text for note in notes.told(result)), "")
    return {
        "policy": result.probe,
        "rule": result.objective,
        "category": "latency objective",
        "result": RESULTS[result.state],
        "scored": True,
        "message": printable(f"{result.state.words}: {said}"[:MAX_MESSAGE]),
        "resources": [{"apiVersion": API_VERSION, "kind": KIND, "namespace": namespace, "name": result.probe}],
        "properties": {name: figure for name, figure in figures.items() if figure is not None},
    }
