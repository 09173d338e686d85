"""What stops all measuring at once: a label on the operator's own namespace, or the chart. Pure."""

from latencyprobe_operator.cluster.decoding import SUSPEND_LABEL
from latencyprobe_operator.cluster.state import ClusterState


def suspended_by(state: ClusterState, home: str, *, chart: bool) -> str:
    """Return what has stopped it and how to take that back, an empty text while nothing has. `home`: the operator's
    namespace; `chart`: its value `agent.suspend`."""
    if chart:
        return "agent.suspend=true in the chart: set it to false to measure again"
    namespace = state.namespace(home)
    if namespace is not None and namespace.suspend:
        return f"a label: kubectl label namespace {home} {SUSPEND_LABEL}- to measure again"
    return ""
