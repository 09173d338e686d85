"""What Prometheus has of an objective: its counters of good and bad events, and who it is there. Pure.

Each container has counters of its own, from the agent of its node: a server's for one perspective, a caller's for the
other. So the events of an objective are the sum over all series with these labels, and no event is in two of them.
"""

from latencyprobe import slo_events
from latencyprobe.rules import promql
from latencyprobe.slo.objective import Objective

EVENTS = promql.series(slo_events.SLO_EVENTS, slo_events.UNIT, "counter")
OUTCOME = promql.label(slo_events.OUTCOME)


def identity(objective: Objective) -> dict[str, str]:
    """Return the labels of everything that is made of an objective."""
    return {
        "namespace": objective.key.namespace,
        "probe": objective.key.probe,
        "target": objective.target,
        "objective": objective.key.objective,
        "perspective": slo_events.perspective(objective.key.perspective),
    }


def total(objective: Objective) -> str:
    """Return the selector of all its events."""
    return promql.selector(EVENTS, _matching(objective))


def bad(objective: Objective) -> str:
    """Return the selector of its bad events."""
    return promql.selector(EVENTS, _matching(objective) | {OUTCOME: slo_events.BAD})


def _matching(objective: Objective) -> dict[str, str]:
    attributes = {
        "namespace": slo_events.PROBE_NAMESPACE,
        "probe": slo_events.PROBE,
        "target": slo_events.TARGET,
        "objective": slo_events.OBJECTIVE,
        "perspective": slo_events.PERSPECTIVE,
    }
    return {promql.label(attributes[name]): value for name, value in identity(objective).items()}
