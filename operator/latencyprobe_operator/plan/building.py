"""One node's plan from what LatencyProbes mean there. Pure; a pod that has not changed is not described again."""

from collections.abc import Sequence

import msgspec

from latencyprobe import plan
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.plan.resources import attributes
from latencyprobe_operator.plan.targets import Part


class Builder:
    """`pair_key` and `suspend` go into all plans."""

    def __init__(self, pair_key: bytes) -> None:
        self.pair_key = pair_key
        self.suspend = False
        self._pods_of: dict[str, tuple[Pod, ...]] = {}  # what a plan's pods were made of

    def forget(self, node: str) -> None:
        """Take note that a node has no plan any more."""
        del self._pods_of[node]

    def took(self, node: str, pods: tuple[Pod, ...]) -> None:
        """Take note of what the pods of a plan that is in force now were made of."""
        self._pods_of[node] = pods

    def built(
        self, node: str, parts: Sequence[Part], before: plan.NodePlan | None = None
    ) -> tuple[plan.NodePlan, tuple[Pod, ...]]:
        """Return a node's plan from its LatencyProbes' parts, without its generation, and the pods in it. `before`: the
        one in force."""
        by_uid = {pod.uid: pod for part in parts for pod in part.pods}
        pods = tuple(by_uid[uid] for uid in sorted(by_uid))
        new = plan.NodePlan(
            node=node,
            generation=0,
            digest="",
            targets=tuple(t for part in parts for t in part.targets),
            objectives=tuple(o for part in parts for o in part.objectives),
            pods=self._planned(node, pods, before),
            suspend=self.suspend,
            pair_key=self.pair_key,
        )
        return msgspec.structs.replace(new, digest=plan.digest_of(new)), pods

    def _planned(self, node: str, pods: tuple[Pod, ...], before: plan.NodePlan | None) -> tuple[plan.Pod, ...]:
        """Return the pods as a plan carries them: those that have not changed are the ones of the plan before."""
        made = zip(self._pods_of.get(node, ()), before.pods if before is not None else (), strict=True)
        known = {pod.uid: (pod, planned) for pod, planned in made}
        return tuple(
            known[pod.uid][1] if pod.uid in known and known[pod.uid][0] is pod else plan_pod(pod) for pod in pods
        )


def plan_pod(pod: Pod) -> plan.Pod:
    """Return a pod as a node plan carries it: running containers and resource attributes."""
    shared, differing = attributes(pod)
    return plan.Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        addresses=pod.addresses,
        containers=tuple(plan.Container(c.name, c.id, differing.get(c.name, {})) for c in pod.containers if c.id),
        resource=shared,
    )
