"""Objectives as Sloth's PrometheusServiceLevel (sloth.slok.dev/v1). Sloth makes rules and alerts of its own. Pure."""

from collections.abc import Iterable

from latencyprobe.errors import SpecError
from latencyprobe.rules import counters, wording
from latencyprobe.rules.documents import Document
from latencyprobe.slo.objective import Objective, objectives
from latencyprobe.slo.windows import Severity
from latencyprobe.spec import LatencyProbe

_KNOWN = ("28d", "30d")  # windows that Sloth has a table for
_RANGE = "[{{.window}}]"


def service_levels(probes: Iterable[LatencyProbe]) -> list[Document]:
    """Return one document for each LatencyProbe.

    Sloth takes one window for all that it generates, from its command line. Raises SpecError where there are several.
    """
    of_probes = [(probe, objectives(probe)) for probe in probes]
    windows = sorted({objective.window for _, found in of_probes for objective in found})
    if len(windows) > 1:
        problem = f"windows {' and '.join(windows)}, and Sloth has one for all: choose with --window {windows[0]}"
        raise SpecError("spec.objectives", problem)
    return [Document(_document(probe, found), (_how(windows[0]),)) for probe, found in of_probes]


def _how(window: str) -> str:
    """Return how Sloth is to be run for a window."""
    command = f"sloth generate --default-slo-period {window}"
    return (
        command if window in _KNOWN else f"{command} --slo-period-windows-path FOLDER, with alert windows of your own"
    )


def _document(probe: LatencyProbe, found: Iterable[Objective]) -> dict[str, object]:
    return {
        "apiVersion": "sloth.slok.dev/v1",
        "kind": "PrometheusServiceLevel",
        "metadata": {"name": probe.name, "namespace": probe.namespace},
        "spec": {"service": f"{probe.namespace}.{probe.name}", "slos": [_slo(objective) for objective in found]},
    }


def _slo(objective: Objective) -> dict[str, object]:
    labels = counters.identity(objective)
    return {
        "name": f"{objective.key.objective}-{labels['perspective']}",
        "objective": float(objective.goal),
        "description": wording.goal(objective),
        "labels": labels,
        "sli": {
            "events": {
                "errorQuery": f"sum(rate({counters.bad(objective)}{_RANGE}))",
                "totalQuery": f"sum(rate({counters.total(objective)}{_RANGE}))",
            }
        },
        "alerting": {
            "name": "LatencyProbeBurnRate",
            "annotations": {"description": wording.described(objective)},
            "pageAlert": {"labels": {"severity": str(Severity.PAGE)}},
            "ticketAlert": {"labels": {"severity": str(Severity.TICKET)}},
        },
    }
