"""The metrics of objectives, their good and bad events first: how they and their attributes are spelled.

Agents send it, and say in their vocabulary what each name means; rules/ asks a Prometheus for what became of it there.
"""

SLO_EVENTS = "latencyprobe.slo.events"
UNIT = "{event}"
SLO_GOAL = "latencyprobe.slo.goal"
SLO_THRESHOLD = "latencyprobe.slo.threshold"
SLO_WINDOW = "latencyprobe.slo.window"

PROBE_NAMESPACE = "latencyprobe.probe.namespace"
PROBE = "latencyprobe.probe"
TARGET = "latencyprobe.target"
OBJECTIVE = "latencyprobe.objective"
PERSPECTIVE = "latencyprobe.perspective"
OUTCOME = "latencyprobe.outcome"

GOOD = "good"
BAD = "bad"


def perspective(role: str) -> str:
    """Return a role (`Server`) as the attribute `PERSPECTIVE` has it: `server`."""
    return role.lower()
