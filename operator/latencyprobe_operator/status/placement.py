"""Why no agent reports from a node that must measure, as far as nodes and the agents' pods tell. Pure.

The reasons are those of conditions, and part of the API; each text ends with what to do.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from latencyprobe_operator.cluster.decoding import MEASURE_LABEL
from latencyprobe_operator.cluster.objects import Kind, Node, Pod
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.config import Toleration
from latencyprobe_operator.plan.taints import repelling

SILENT = "AgentSilent"  # it runs, so it may have called
_NAMED = 3
_REASONS = 3  # that one message tells
_CAUSES = {  # reason, and what to say with the cluster's own word and the command that shows the pod
    Kind.UNSCHEDULABLE: ("AgentUnschedulable", "its agent cannot be placed there ({word}): make room, or {show}"),
    Kind.IMAGE: (
        "AgentImage",
        "its agent's image {word} cannot be pulled: check agent.image.* and pullSecrets of the chart; {show}",
    ),
    Kind.CRASH: ("AgentCrashing", "its agent crashes, {word}: {log}"),
    Kind.START: ("AgentNotStarted", "its agent's container is not started ({word}): {show}"),
    Kind.ENDED: ("AgentEnded", "its agent's pod was ended ({word}) and is made again: {show}"),
}


class Why(NamedTuple):
    """`certain`: it will not go by waiting alone, so it can be told before the agent is late."""

    reason: str
    text: str
    certain: bool


class Placement:
    """The nodes and the agents' pods at one moment. `tolerations`: of the agents' DaemonSet."""

    def __init__(self, state: ClusterState, agent_namespace: str, tolerations: Sequence[Toleration]) -> None:
        self._nodes = state.nodes()
        self._namespace = agent_namespace
        self._tolerations = tolerations
        self._pods: dict[str, Pod] = {}
        for pod in state.pods(agent_namespace):
            if pod.owner_kind == "DaemonSet":
                known = self._pods.get(pod.node or pod.meant_for)
                # while one takes another's place, the younger one's trouble counts
                if known is None or known.terminating or known.terminal:
                    self._pods[pod.node or pod.meant_for] = pod

    def why(self, name: str) -> Why:
        """Return why no agent reports from a node."""
        node, pod = self._nodes.get(name), self._pods.get(name)
        if node is None:
            return Why("NodeGone", "there is no such node any more", certain=False)
        if node.unready:
            text = f"the node is not ready ({node.unready}): kubectl describe node {name}"
            return Why("NodeNotReady", text, certain=True)
        if pod is not None:
            return self._of(pod)
        return self._absent(node)

    def told(self, nodes: Sequence[str]) -> tuple[str, str]:
        """Return the reason of most of these nodes, and a text about all of them. At least one must be given."""
        by_reason: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for name in nodes:
            why = self.why(name)
            by_reason[why.reason].append((name, why.text))
        most = sorted(by_reason.items(), key=lambda one: (-len(one[1]), one[0]))
        parts = [f"no agent reports from {some([n for n, _ in found])}: {found[0][1]}" for _, found in most[:_REASONS]]
        return most[0][0], "; ".join(parts)

    def ending(self, nodes: Sequence[str]) -> list[str]:
        """Return those of these nodes whose agent's pod was told to end and has no follower yet: what it reports now
        is soon over."""
        return [name for name in nodes if (pod := self._pods.get(name)) and pod.terminating]

    def hint(self, nodes: Sequence[str]) -> str:
        """Return what keeps the first of these nodes from having an agent that waiting does not mend, empty without."""
        found = ((name, self.why(name)) for name in nodes)
        return next((f"{name}: {why.text}" for name, why in found if why.certain), "")

    def _of(self, pod: Pod) -> Why:
        show = f"kubectl describe pod -n {self._namespace} {pod.name}"
        log = f"kubectl logs -n {self._namespace} {pod.name}"
        if pod.trouble is not None:
            reason, text = _CAUSES[pod.trouble.kind]
            told = text.format(word=pod.trouble.text, show=show, log=f"{log} --previous")
            return Why(reason, told, certain=pod.trouble.kind is not Kind.ENDED)
        if pod.terminating:
            return Why(
                "AgentEnded", f"its agent's pod is being deleted, and another one follows: {show}", certain=False
            )
        if any(container.id for container in pod.containers):
            text = f"its agent runs, but is not heard: does it reach the operator's port 8443? {log}"
            return Why(SILENT, text, certain=False)
        return Why("AgentMissing", f"its agent's pod is being started: {show}", certain=False)

    def _absent(self, node: Node) -> Why:
        if node.system not in ("", "linux"):
            text = f"the node runs {node.system}, where nothing can be measured: keep target pods on Linux nodes"
            return Why("NodeNotLinux", text, certain=True)
        if taints := repelling(node, self._tolerations):
            named = ", ".join(str(taint) for taint in taints[:_NAMED])
            text = f"the node's taint {named} keeps agents away: add a toleration to agent.tolerations"
            return Why("NodeTainted", text, certain=True)
        if not node.measure:
            text = f"the label {MEASURE_LABEL}=true is not on the node: the operator's log says who refuses it"
            return Why("NodeNotLabelled", text, certain=False)
        text = f"no pod is made for the node: kubectl describe daemonset -n {self._namespace} (Pod Security, quotas)"
        return Why("AgentMissing", text, certain=False)


def some(names: Sequence[str]) -> str:
    """Return the first few of these names, and how many more there are."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
