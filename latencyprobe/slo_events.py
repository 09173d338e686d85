"""The metric of good and bad events of objectives: how it and its attributes are spelled.

Agents send it, and say in their vocabulary what each name means; rules/ asks a Prometheus for what became of it there.
"""

SLO_EVENTS = "latencyprobe.slo.events"
UNIT = "{event}"

PROBE_NAMESPACE = "latencyprobe.probe.namespace"
PROBE = "latencyprobe.probe"
TARGET = "latencyprobe.target"
OBJECTIVE = "latencyprobe.objective"
DEFINITION = "latencyprobe.objective.definition"
PERSPECTIVE = "latencyprobe.perspective"
OUTCOME = "latencyprobe.outcome"

GOOD = "good"
BAD = "bad"


def perspective(role: str) -> str:
    """Return a role (`Server`) as the attribute `PERSPECTIVE` has it: `server`."""
    return role.lower()
