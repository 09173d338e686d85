"""What agents leave out of their statuses: pure, from what they reported."""

from collections.abc import Mapping, Sequence

from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.status.placement import some


def targets(namespace: str, states: Mapping[str, NodeState], agents: Agents) -> str:
    """Return of how many targets of a namespace the agents say nothing, empty if of none."""
    ready = {node: agents.of[node].status.untold for node, state in states.items() if state is NodeState.READY}
    nodes = sorted(node for node, untold in ready.items() if namespace in untold)
    if not nodes:
        return ""
    return (
        f"the agent on {some(nodes)} says nothing of {ready[nodes[0]][namespace]} targets of this namespace, which has "
        "most there, as a status has no room for them: whether they see traffic, and which are refused, is not known; "
        "let fewer targets select pods there"
    )


def some_of(ids: Mapping[str, Sequence[str]], namespace: str, agents: Agents) -> bool:
    """Return whether a node's agent may have left out one of these targets of a namespace (node: ids)."""
    limited = (node for node in ids if namespace in agents.of[node].status.untold)
    return any(set(ids[node]).difference(one.id for one in agents.of[node].status.targets) for node in limited)
