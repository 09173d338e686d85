"""The metrics of objectives, their good and bad events first: how they and their attributes are spelled.

Agents send them, and say in their vocabulary what each name means; rules/ and shared_store/ ask a Prometheus for what
became of them there.
"""

SLO_EVENTS = "latencyprobe.slo.events"
UNIT = "{event}"
SERVER_DURATION = "latencyprobe.server.duration"  # of all events of a target, in s
CLIENT_DURATION = "latencyprobe.client.duration"
EXCLUDED = "latencyprobe.exchange.excluded"
EXCLUDED_UNIT = "{exchange}"
SLO_GOAL = "latencyprobe.slo.goal"
SLO_THRESHOLD = "latencyprobe.slo.threshold"
SLO_WINDOW = "latencyprobe.slo.window"

PROBE_NAMESPACE = "latencyprobe.probe.namespace"
PROBE = "latencyprobe.probe"
TARGET = "latencyprobe.target"
OBJECTIVE = "latencyprobe.objective"
DEFINITION = "latencyprobe.objective.definition"
PERSPECTIVE = "latencyprobe.perspective"
OUTCOME = "latencyprobe.outcome"
ROLE = "latencyprobe.role"
REASON = "latencyprobe.reason"

GOOD = "good"
BAD = "bad"


def perspective(role: str) -> str:
    """Return a role (`Server`) as the attribute `PERSPECTIVE` has it: `server`."""
    return role.lower()
