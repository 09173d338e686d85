"""One node's plan from what LatencyProbes mean there. Pure; a pod that has not changed is not described again, and no
digest of what has not changed is made again: a plan has some 65 kB, of which a change concerns one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from latencyprobe import plan, plan_digest
from latencyprobe.plan_digest import PART_BYTES
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.plan.resources import attributes
from latencyprobe_operator.plan.targets import Part


class Built(NamedTuple):
    """A plan, without its generation. `pods`: what its pods were made of; `digests`: of its targets, then its pods."""

    plan: plan.NodePlan
    pods: tuple[Pod, ...]
    digests: bytes


class Builder:
    """`pair_key` and `suspend` go into all plans."""

    def __init__(self, pair_key: bytes) -> None:
        self.pair_key = pair_key
        self.suspend = False
        self._in_force: dict[str, Built] = {}

    def forget(self, node: str) -> None:
        """Take note that a node has no plan any more."""
        del self._in_force[node]

    def took(self, node: str, built: Built) -> None:
        """Take note of a plan that is in force now."""
        self._in_force[node] = built

    def built(self, node: str, parts: Sequence[Part]) -> Built:
        """Return a node's plan from its LatencyProbes' parts."""
        by_uid = {pod.uid: pod for part in parts for pod in part.pods}
        pods = tuple(by_uid[uid] for uid in sorted(by_uid))
        new = plan.NodePlan(
            node=node,
            generation=0,
            digest="",
            targets=tuple(t for part in parts for t in part.targets),
            objectives=tuple(o for part in parts for o in part.objectives),
            pods=self._planned(node, pods),
            suspend=self.suspend,
            pair_key=self.pair_key,
        )
        digests = self._digests(node, (*new.targets, *new.pods))
        return Built(msgspec.structs.replace(new, digest=plan_digest.digest_of(new, digests)), pods, b"".join(digests))

    def _digests(self, node: str, parts: Sequence[plan.Target | plan.Pod]) -> list[bytes]:
        before = self._in_force.get(node)
        known: dict[int, bytes] = {}
        if before is not None:
            for i, part in enumerate((*before.plan.targets, *before.plan.pods)):
                known[id(part)] = before.digests[i * PART_BYTES : (i + 1) * PART_BYTES]
        return [known.get(id(part)) or plan_digest.part_digest(part) for part in parts]

    def _planned(self, node: str, pods: tuple[Pod, ...]) -> tuple[plan.Pod, ...]:
        """Return the pods as a plan carries them: those that have not changed are the ones of the plan before."""
        before = self._in_force.get(node)
        made = zip(before.pods, before.plan.pods, strict=True) if before is not None else ()
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
