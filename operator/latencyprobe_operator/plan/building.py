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


class _Pods(NamedTuple):
    """The pods of a plan. `parts`: those of each LatencyProbe; `of`: what they were made of; `digests`: of each."""

    parts: tuple[tuple[Pod, ...], ...]
    of: tuple[Pod, ...]
    planned: tuple[plan.Pod, ...]
    digests: bytes


class Built(NamedTuple):
    """A plan, without its generation. `digests`: of its targets."""

    plan: plan.NodePlan
    pods: _Pods
    digests: bytes


_NO_PODS = _Pods((), (), (), b"")


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
        pods = self._pods(node, tuple(part.pods for part in parts))
        new = plan.NodePlan(
            node=node,
            generation=0,
            digest="",
            targets=tuple(t for part in parts for t in part.targets),
            objectives=tuple(o for part in parts for o in part.objectives),
            pods=pods.planned,
            suspend=self.suspend,
            pair_key=self.pair_key,
        )
        before = self._in_force.get(node)
        digests = _digests(new.targets, *((before.plan.targets, before.digests) if before is not None else ()))
        whole = plan_digest.digest_of(new, (digests, pods.digests))
        return Built(msgspec.structs.replace(new, digest=whole), pods, digests)

    def _pods(self, node: str, parts: tuple[tuple[Pod, ...], ...]) -> _Pods:
        """Return the pods as a plan carries them: those that have not changed are the ones of the plan before."""
        before = self._in_force[node].pods if node in self._in_force else _NO_PODS
        if parts == before.parts:
            return before
        by_uid = {pod.uid: pod for part in parts for pod in part}
        pods = tuple(by_uid[uid] for uid in sorted(by_uid))
        known = {pod.uid: (pod, planned) for pod, planned in zip(before.of, before.planned, strict=True)}
        planned = tuple(
            known[pod.uid][1] if pod.uid in known and known[pod.uid][0] is pod else plan_pod(pod) for pod in pods
        )
        return _Pods(parts, pods, planned, _digests(planned, before.planned, before.digests))


def _digests(
    parts: Sequence[plan.Target | plan.Pod], before: Sequence[plan.Target | plan.Pod] = (), known: bytes = b""
) -> bytes:
    """Return the digests of parts, one after the other. `known`: those of the parts `before`."""
    each = [known[i : i + PART_BYTES] for i in range(0, len(known), PART_BYTES)]
    if len(parts) == len(before):  # mostly: one is another
        same = zip(parts, before, each, strict=True)
        return b"".join([digest if part is old else plan_digest.part_digest(part) for part, old, digest in same])
    of = {id(part): digest for part, digest in zip(before, each, strict=True)}
    return b"".join([of.get(id(part)) or plan_digest.part_digest(part) for part in parts])


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
