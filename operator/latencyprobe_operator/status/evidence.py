"""What of the evidence that a LatencyProbe asks for its nodes do not make, or not yet: pure, from what the agents
reported.
"""

import msgspec

from latencyprobe.spec import signal_of
from latencyprobe.variants import LACKING, USER_STACKS
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.targets import Resolved
from latencyprobe_operator.status.placement import some


def unsupported(resolved: Resolved, ready: list[str], agents: Agents) -> str:
    """Return which signals are not attached on these nodes, why, and the remedy; empty without any."""
    wanted = _wanted(resolved)
    refused = {node: sorted(wanted & agents.of[node].status.refused.keys()) for node in ready}
    nodes = sorted(node for node, signals in refused.items() if signals)
    if not nodes:
        return ""
    first = refused[nodes[0]]
    why = agents.of[nodes[0]].status.refused[first[0]]
    return f"agent on {some(nodes)} measures without evidence of {', '.join(first)}: {why}"


def starting(resolved: Resolved, ready: list[str], agents: Agents) -> str:
    """Return which signals these nodes measure without for some seconds more; empty without any."""
    wanted = _wanted(resolved)
    loading = {node: sorted(wanted.intersection(agents.of[node].status.loading)) for node in ready}
    nodes = sorted(node for node, signals in loading.items() if signals)
    if not nodes:
        return ""
    return f"agent on {some(nodes)} measures, and is about to attach evidence of {', '.join(loading[nodes[0]])}"


def user_stacks_missing(resolved: Resolved, ready: list[str], agents: Agents) -> str:
    """Return which of these nodes name no functions of programs, empty if all do, or if nobody asks for it."""
    syscalls = resolved.probe.spec.evidence.syscalls
    nodes = sorted(node for node in ready if agents.of[node].status.variants.get(USER_STACKS) == LACKING)
    if not nodes or syscalls is None or syscalls.stacks != "User":
        return ""
    return (
        f"agent on {some(nodes)} may not look into processes, so waits have the kernel's stack alone: set "
        "agent.userStacks=true in the chart, or spec.evidence.syscalls.stacks to Kernel"
    )


def _wanted(resolved: Resolved) -> set[str]:
    return {signal_of(field) for field, on in msgspec.structs.asdict(resolved.probe.spec.evidence).items() if on}
