"""All LatencyProbes against the cluster's state → one plan per node, and the nodes that must measure.

Pure and incremental: `update` looks again only at LatencyProbes that changed or whose namespace did, and builds only
the plans of the nodes that they touch.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping

import msgspec

from latencyprobe import plan
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Key, Pod
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.plan.resources import attributes
from latencyprobe_operator.plan.targets import Resolved, resolve


class Planner:
    """Node plans, kept up to date.

    `suspended`: an administrator has stopped all measuring; plans that are made say so.
    `epoch` is the lowest generation: a time at the process's start, so that generations grow over restarts.
    """

    def __init__(self, epoch: int, pair_key: bytes = b"") -> None:
        self.resolved: dict[Key, Resolved] = {}
        self.plans: dict[str, plan.NodePlan] = {}
        self._generation = epoch
        self._probes_on: defaultdict[str, set[Key]] = defaultdict(set)
        self.suspended = False
        self._pair_key = pair_key
        self._changes = Changes()
        self._outdated: set[str] = set()

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that must measure."""
        return frozenset().union(*(r.nodes for r in self.resolved.values()))

    def plan_of(self, node: str) -> plan.NodePlan:
        """Return a node's plan; an empty one when it has nothing to measure."""
        if node not in self.plans:
            self.plans[node] = self._built(node)
        return self.plans[node]

    def calls(self, node: str, uid: str) -> bool:
        """Return whether a node's plan asks for the client half of a pod."""
        known = self.plans.get(node)
        return known is not None and any(uid in t.callers for t in known.targets)

    def use_pair_key(self, pair_key: bytes) -> frozenset[str]:
        """Take a new pairing key; returns the nodes whose plan changed."""
        if pair_key != self._pair_key:
            self._pair_key = pair_key
            self._outdated |= self.plans.keys()
        return self._rebuild()

    def update(self, probes: Mapping[Key, LatencyProbe], state: ClusterState, changes: Changes) -> frozenset[str]:
        """Look again at what changed; returns the nodes whose plan is a different one now. The next
        update makes up for one that raised."""
        self._changes.add(changes)
        for key in self.resolved.keys() - probes.keys():
            self._put(key, None)
        for key, probe in probes.items():
            old = self.resolved.get(key)
            cluster = probe.spec.clients.scope == "Cluster"
            if (
                old is None
                or old.probe != probe
                or self._changes.nodes
                or key[0] in self._changes.namespaces
                or (cluster and self._changes)
            ):
                self._put(key, resolve(probe, state))
        changed = self._rebuild()
        if self._changes.nodes:
            for node in self.plans.keys() - state.nodes().keys() - self._probes_on.keys():
                del self.plans[node]
        self._changes = Changes()
        return changed

    def _put(self, key: Key, new: Resolved | None) -> None:
        """Replace one probe's part; the plans of nodes where it differs are outdated."""
        old = self.resolved.pop(key, None)
        if new is not None:
            self.resolved[key] = new
        before = set(old.targets) if old else set()
        after = set(new.targets) if new else set()
        for node in before - after:
            self._probes_on[node].discard(key)
        for node in after:
            self._probes_on[node].add(key)
        same = {n for n in before & after if old and new and _part(old, n) == _part(new, n)}
        self._outdated |= (before | after) - same

    def _rebuild(self) -> frozenset[str]:
        """Build the outdated plans, all or none; returns the nodes whose plan is a different one now."""
        built = {node: self._built(node) for node in self._outdated}
        changed = frozenset(node for node, new in built.items() if new is not self.plans.get(node))
        self.plans |= built
        self._outdated.clear()
        return changed

    def _built(self, node: str) -> plan.NodePlan:
        """Return a node's plan from its probes' parts: the one that it has if nothing differs."""
        parts = [self.resolved[key] for key in sorted(self._probes_on.get(node, ()))]
        if not parts:
            self._probes_on.pop(node, None)
        pods = {p.uid: p for r in parts for p in r.pods.get(node, ())}
        new = plan.NodePlan(
            node=node,
            generation=0,
            digest="",
            targets=tuple(t for r in parts for t in r.targets[node]),
            objectives=tuple(o for r in parts for o in r.objectives[node]),
            pods=tuple(plan_pod(pods[uid]) for uid in sorted(pods)),
            suspend=self.suspended,
            pair_key=self._pair_key,
            pair_key_id=hashlib.sha256(self._pair_key).hexdigest()[:8] if self._pair_key else "",
        )
        digest = hashlib.sha256(msgspec.json.encode(new)).hexdigest()
        old = self.plans.get(node)
        if old is not None and old.digest == digest:
            return old
        self._generation += 1
        return msgspec.structs.replace(new, generation=self._generation, digest=digest)


def _part(resolved: Resolved, node: str) -> tuple[object, ...]:
    return resolved.targets[node], resolved.objectives[node], resolved.pods[node]


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
