"""All LatencyProbes against the cluster's state → one plan per node, and the nodes that must measure.

Pure and incremental: `work` looks again only at LatencyProbes that changed or that a change concerns, of these only at
the nodes that it concerns, and builds only the plans of nodes where something differs.
"""

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence

import msgspec

from latencyprobe import plan
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Key, Pod
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.plan.resources import attributes
from latencyprobe_operator.plan.targets import Look, Part, Resolved, finished, look

Work = Generator[None, None, frozenset[str]]


class Planner:
    """Node plans, kept up to date.

    `epoch` is the lowest generation: a time at the process's start, so that generations grow over restarts. `nodes`:
    those that must measure. `suspended`: an administrator has stopped all measuring; plans that are made say so.
    """

    def __init__(self, epoch: int, pair_key: bytes = b"") -> None:
        self.resolved: dict[Key, Resolved] = {}
        self.plans: dict[str, plan.NodePlan] = {}
        self.nodes: frozenset[str] = frozenset()
        self.suspended = False
        self._generation = epoch
        self._probes_on: defaultdict[str, set[Key]] = defaultdict(set)
        self._pods_of: dict[str, tuple[Pod, ...]] = {}  # what a plan's pods were made of
        self._pair_key = pair_key
        self._changes = Changes()
        self._outdated: set[str] = set()

    def plan_of(self, node: str) -> plan.NodePlan:
        """Return a node's plan; an empty one when it has nothing to measure, or none was made yet."""
        if node not in self.plans:
            self._replace(node, *self._built(node, []))  # whatever `work` has found already: it tells who has another
        return self.plans[node]

    def calls(self, node: str, uid: str) -> bool:
        """Return whether a node's plan asks for the client half of a pod."""
        known = self.plans.get(node)
        return known is not None and any(uid in t.callers for t in known.targets)

    def use_pair_key(self, pair_key: bytes) -> bool:
        """Take a pairing key; returns whether it is a new one. The next update brings it into all plans."""
        if pair_key == self._pair_key:
            return False
        self._pair_key = pair_key
        self._outdated |= self.plans.keys()
        return True

    def update(self, probes: Mapping[Key, LatencyProbe], state: ClusterState, changes: Changes) -> frozenset[str]:
        """Do all of `work` at once."""
        return finished(self.work(probes, state, changes))

    def work(self, probes: Mapping[Key, LatencyProbe], state: ClusterState, changes: Changes) -> Work:
        """Look again at what changed; returns the nodes whose plan is a different one now.

        A `yield` is where others may run. What changes meanwhile is left to the next work, all plans are the earlier
        ones until the end, and the next work makes up for one that raised.
        """
        self._changes.add(changes)
        known = frozenset(state.nodes())
        for key in self.resolved.keys() - probes.keys():
            before = self.resolved[key]
            self._put(key, Look(before, dict.fromkeys(before.parts)), known)
            del self.resolved[key]
            yield
        for key, probe in probes.items():
            if self._concerns(key, probe):
                self._put(key, (yield from look(probe, state, self.resolved.get(key), self._changes)), known)
                yield
        if self._changes.nodes:
            moved = {key for node in self._changes.nodes for key in self._probes_on.get(node, ())}
            for key, resolved in self.resolved.items():
                if key in moved or resolved.everywhere:
                    self.resolved[key] = resolved.on_nodes(known)
        changed = yield from self._rebuild()
        busy = {node for node, keys in self._probes_on.items() if keys}
        self.nodes = known if any(resolved.everywhere for resolved in self.resolved.values()) else known & busy
        for node in self.plans.keys() - known - busy:
            del self.plans[node], self._pods_of[node]
        self._changes = Changes()
        return changed

    def _concerns(self, key: Key, probe: LatencyProbe) -> bool:
        """Return whether a LatencyProbe is to be looked at again."""
        old = self.resolved.get(key)
        return (
            old is None
            or (old.probe is not probe and old.probe != probe)
            or key[0] in self._changes.namespaces
            or (bool(self._changes.pods_on) and old.everywhere)
        )

    def _put(self, key: Key, found: Look, known: frozenset[str]) -> None:
        """Take what became of a LatencyProbe; the plans of nodes where it differs are outdated."""
        before = self.resolved.get(key)
        parts = before.parts if before is not None else {}
        for node, part in found.parts.items():
            if part is None:
                parts.pop(node, None)
                self._probes_on[node].discard(key)
            else:
                parts[node] = part
                self._probes_on[node].add(key)
        self._outdated |= found.parts.keys()
        self.resolved[key] = msgspec.structs.replace(found.resolved, parts=parts).on_nodes(known)

    def _rebuild(self) -> Work:
        """Build the outdated plans, all or none; returns the nodes whose plan is a different one now."""
        outdated, self._outdated = self._outdated, set()
        built = {}
        try:
            for node in outdated:
                keys = self._probes_on.get(node, ())
                built[node] = self._built(node, [self.resolved[key].parts[node] for key in sorted(keys)])
                if not keys:
                    self._probes_on.pop(node, None)
                yield
        except BaseException:
            self._outdated |= outdated
            raise
        return frozenset(node for node, found in built.items() if self._replace(node, *found))

    def _replace(self, node: str, new: plan.NodePlan, pods: tuple[Pod, ...]) -> bool:
        """Take a node's plan; returns whether it is a different one. A node's generation only grows."""
        self._pods_of[node] = pods
        old = self.plans.get(node)
        if old is not None and old.digest == new.digest:
            return False
        self._generation += 1
        self.plans[node] = msgspec.structs.replace(new, generation=self._generation)
        return True

    def _built(self, node: str, parts: Sequence[Part]) -> tuple[plan.NodePlan, tuple[Pod, ...]]:
        """Return a node's plan from its probes' parts, without its generation, and the pods in it."""
        by_uid = {pod.uid: pod for part in parts for pod in part.pods}
        pods = tuple(by_uid[uid] for uid in sorted(by_uid))
        new = plan.NodePlan(
            node=node,
            generation=0,
            digest="",
            targets=tuple(t for part in parts for t in part.targets),
            objectives=tuple(o for part in parts for o in part.objectives),
            pods=self._planned(node, pods),
            suspend=self.suspended,
            pair_key=self._pair_key,
        )
        return msgspec.structs.replace(new, digest=plan.digest_of(new)), pods

    def _planned(self, node: str, pods: tuple[Pod, ...]) -> tuple[plan.Pod, ...]:
        """Return the pods as a plan carries them: those that have not changed are the ones of the plan before."""
        old = self.plans.get(node)
        made = zip(self._pods_of.get(node, ()), old.pods if old is not None else (), strict=True)
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
