"""All LatencyProbes against the cluster's state → one plan per node, and the nodes that must measure.

Pure and incremental: `update` looks again only at LatencyProbes that changed or whose namespace did, and builds only
the plans of the nodes that they touch. `app.py` calls it after each change; the directory streams its plans,
`reconcile.py` turns its nodes into label writes.
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

    `epoch` is the lowest generation: a time at the process's start, so that generations grow over restarts.
    """

    def __init__(self, epoch: int, pair_key: bytes = b"") -> None:
        self.resolved: dict[Key, Resolved] = {}
        self.plans: dict[str, plan.NodePlan] = {}
        self._generation = epoch
        self._probes_on: defaultdict[str, set[Key]] = defaultdict(set)
        self._pair_key = pair_key

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that must measure."""
        return frozenset().union(*(r.nodes for r in self.resolved.values()))

    def plan_of(self, node: str) -> plan.NodePlan:
        """Return a node's plan; an empty one when it has nothing to measure."""
        if node not in self.plans:
            self._rebuild(node)
        return self.plans[node]

    def calls(self, node: str, uid: str) -> bool:
        """Return whether a node's plan asks for the client half of a pod."""
        known = self.plans.get(node)
        return known is not None and any(uid in t.callers for t in known.targets)

    def use_pair_key(self, pair_key: bytes) -> frozenset[str]:
        """Take a new pairing key; returns the nodes whose plan changed."""
        if pair_key == self._pair_key:
            return frozenset()
        self._pair_key = pair_key
        return frozenset(node for node in self.plans if self._rebuild(node))

    def update(self, probes: Mapping[Key, LatencyProbe], state: ClusterState, changes: Changes) -> frozenset[str]:
        """Look again at what changed; returns the nodes whose plan is a different one now."""
        touched: set[str] = set()
        for key in self.resolved.keys() - probes.keys():
            touched |= self._put(key, None)
        for key, probe in probes.items():
            old = self.resolved.get(key)
            cluster = probe.spec.clients.scope == "Cluster"
            if (
                old is None
                or old.probe != probe
                or changes.nodes
                or key[0] in changes.namespaces
                or (cluster and changes)
            ):
                touched |= self._put(key, resolve(probe, state))
        changed = frozenset(node for node in touched if self._rebuild(node))
        if changes.nodes:
            for node in self.plans.keys() - state.nodes().keys() - self._probes_on.keys():
                del self.plans[node]
        return changed

    def _put(self, key: Key, new: Resolved | None) -> set[str]:
        """Replace one probe's part; returns the nodes that it touches, before or after."""
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
        return (before | after) - same

    def _rebuild(self, node: str) -> bool:
        """Build a node's plan from its probes' parts; returns whether its content changed."""
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
            pair_key=self._pair_key,
            pair_key_id=hashlib.sha256(self._pair_key).hexdigest()[:8] if self._pair_key else "",
        )
        old = self.plans.get(node)
        numbered = self._numbered(new, old)
        self.plans[node] = numbered
        return numbered is not old

    def _numbered(self, content: plan.NodePlan, old: plan.NodePlan | None) -> plan.NodePlan:
        digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()
        if old is not None and old.digest == digest:
            return old
        self._generation += 1
        return msgspec.structs.replace(content, generation=self._generation, digest=digest)


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
