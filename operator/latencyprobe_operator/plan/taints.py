"""Which of a node's taints keep a DaemonSet's pods away. Pure. Source: Kubernetes, "Taints and Tolerations"."""

from collections.abc import Sequence

from latencyprobe_operator.cluster.objects import Node, Taint
from latencyprobe_operator.config import Toleration

# What the DaemonSet's controller adds to every pod that is not in the host's network. Source: Kubernetes, "DaemonSet".
_OF_ALL = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect=effect)
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),  # cordoned
    )
)


def repelling(node: Node, tolerations: Sequence[Toleration]) -> tuple[Taint, ...]:
    """Return the taints that none of the DaemonSet's own tolerations, or of those that it always has, is for."""
    known = (*_OF_ALL, *tolerations)
    return tuple(taint for taint in node.taints if not any(_tolerates(one, taint) for one in known))


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)
