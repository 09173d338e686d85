"""All LatencyProbes against the cluster's state → one plan per node, and the nodes that must measure.

Pure and incremental: `work` looks again only at LatencyProbes that changed or that a change concerns, of these only at
the nodes that it concerns, and builds only the plans of nodes where something differs.
"""

import math
from collections import defaultdict
from collections.abc import Generator, Mapping

import msgspec

from latencyprobe import plan
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.plan.building import Builder, Built
from latencyprobe_operator.plan.room import MOST, Most, Room
from latencyprobe_operator.plan.staying import Staying
from latencyprobe_operator.plan.targets import NO_ROOM, Look, Resolved, finished, look, refused

Work = Generator[None, None, frozenset[str]]
Looking = Generator[None, None, None]


class Planner:
    """Node plans, kept up to date.

    `epoch` is the lowest generation: a time at the process's start, so that generations grow over restarts; `most`:
    what there is room for. `nodes`: those that must measure, and those whose callers are soon back (`staying`).
    """

    def __init__(self, epoch: int, pair_key: bytes = b"", most: Most = MOST) -> None:
        self.resolved: dict[Key, Resolved] = {}
        self.plans: dict[str, plan.NodePlan] = {}
        self.nodes: frozenset[str] = frozenset()
        self.staying = Staying()
        self._generation = epoch
        self._probes_on: defaultdict[str, set[Key]] = defaultdict(set)
        self._builder = Builder(pair_key)
        self._room = Room(most)
        self._changes = Changes()
        self._outdated: set[str] = set()

    def plan_of(self, node: str) -> plan.NodePlan:
        """Return a node's plan; an empty one when it has nothing to measure, or none was made yet."""
        if node not in self.plans:
            built = self._builder.built(node, [])
            self._replace(node, built)  # whatever `work` has found already: it tells who has another
        return self.plans[node]

    def suspend(self, suspended: bool) -> None:
        """Let the plans that are made from now on say whether an administrator has stopped all measuring."""
        self._builder.suspend = suspended

    @property
    def without_room(self) -> int:
        """How many LatencyProbes there is no room for."""
        return sum(one.refusal is not None and one.refusal[0] == NO_ROOM for one in self.resolved.values())

    def use_pair_key(self, pair_key: bytes) -> bool:
        """Take a pairing key; returns whether it is a new one. The next update brings it into all plans."""
        if pair_key == self._builder.pair_key:
            return False
        self._builder.pair_key = pair_key
        self._outdated |= self.plans.keys()
        return True

    def update(self, probes: Mapping[Key, LatencyProbe], state: ClusterState, changes: Changes) -> frozenset[str]:
        """Do all of `work` at once."""
        return finished(self.work(probes, state, changes))

    def work(
        self, probes: Mapping[Key, LatencyProbe], state: ClusterState, changes: Changes, now_s: float = math.inf
    ) -> Work:
        """Look again at what changed; returns the nodes whose plan is a different one now. `now_s`: of the monotonic
        clock; without it no node stays.

        A `yield` is where others may run. What changes meanwhile is left to the next work, all plans are the earlier
        ones until the end, and the next work makes up for one that raised.
        """
        self._changes.add(changes)
        known = frozenset(state.nodes())
        for key in self.resolved.keys() - probes.keys():
            before = self.resolved[key]
            self._room.forget(key)
            self._put(key, Look(before, dict.fromkeys(before.parts)), known)
            del self.resolved[key]
            yield
        for key, probe in probes.items():
            if self._concerns(key, probe):
                yield from self._look(key, probe, state, known)
        yield from self._share_out(known)
        while self._room.back:
            for key in sorted(self._room.back):
                yield from self._look(key, probes[key], state, known)
            yield from self._share_out(known)
        if self._changes.nodes:
            moved = {key for node in self._changes.nodes for key in self._probes_on.get(node, ())}
            for key, resolved in self.resolved.items():
                if key in moved or resolved.everywhere:
                    self.resolved[key] = resolved.on_nodes(known)
        changed = yield from self._rebuild()
        busy = {node for node, keys in self._probes_on.items() if keys}
        everywhere = any(resolved.everywhere for resolved in self.resolved.values())
        staying = self.staying.nodes(busy, self.resolved, now_s)
        self.nodes = known if everywhere else known & (busy | staying)
        for node in self.plans.keys() - known - busy:
            del self.plans[node]
            self._builder.forget(node)
        self._changes = Changes()
        return changed

    def _concerns(self, key: Key, probe: LatencyProbe) -> bool:
        """Return whether a LatencyProbe is to be looked at again."""
        old = self.resolved.get(key)
        return (
            old is None
            or (old.probe is not probe and old.probe != probe)
            or key[0] in self._changes.namespaces
            or (bool(self._changes.pods_on) and (old.everywhere or (key in self._room.out and old.calls_everywhere)))
        )

    def _look(self, key: Key, probe: LatencyProbe, state: ClusterState, known: frozenset[str]) -> Looking:
        """Look again at a LatencyProbe; one that has no room means nothing, and is told why by `_share_out`."""
        before = self.resolved.get(key)
        was = before if before is not None and before.refusal is None else None
        found = yield from look(probe, state, was, self._changes, self._room.most)
        self._room.ask(key, found.needs(was), anew=before is not was)
        self._room.back.discard(key)
        if key in self._room.out:
            found = refused(probe, before)
        self._put(key, found, known)
        yield
        if self._room.crowded:
            yield from self._share_out(known)

    def _share_out(self, known: frozenset[str]) -> Looking:
        """Find who has no room: they mean nothing, and are told why."""
        yield from self._room.judge()
        while self._room.lost:
            key = self._room.lost.pop()
            theirs = self.resolved[key]
            self._put(key, refused(theirs.probe, theirs, self._room.why(key)), known)
            yield

    def _put(self, key: Key, found: Look, known: frozenset[str]) -> None:
        """Take what became of a LatencyProbe; the plans of nodes where it differs are outdated."""
        before = self.resolved.get(key)
        parts = before.parts if before is not None else {}
        for node, part in found.parts.items():
            if part is None:
                left = parts.pop(node, None)
                if before is not None and left is not None:
                    self.staying.ended(node, key, left, before)
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
                parts = [self.resolved[key].parts[node] for key in sorted(keys)]
                built[node] = self._builder.built(node, parts)
                if not keys:
                    self._probes_on.pop(node, None)
                yield
        except BaseException:
            self._outdated |= outdated
            raise
        return frozenset(node for node, found in built.items() if self._replace(node, found))

    def _replace(self, node: str, new: Built) -> bool:
        """Take a node's plan; returns whether it is a different one. A node's generation only grows."""
        self._builder.took(node, new)
        old = self.plans.get(node)
        if old is not None and old.digest == new.plan.digest:
            return False
        self._generation += 1
        self.plans[node] = msgspec.structs.replace(new.plan, generation=self._generation)
        return True
