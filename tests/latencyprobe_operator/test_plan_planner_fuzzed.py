"""Pods, nodes, Services, EndpointSlices, namespaces and LatencyProbes as a hostile cluster might tell them (100,000
with `OBJECTS=100000` in the environment; else some thousands): each is read or left out, and plans go on, bounded."""

import gc
import json
import tracemalloc
from collections import Counter
from typing import Any

import msgspec
import pytest

from latencyprobe import parsing, plan, plan_digest, planning
from latencyprobe.errors import SpecError
from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.nesting import decoded
from latencyprobe_operator.cluster.objects import key_of
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.client_halves import ClientHalves
from latencyprobe_operator.plan.identities import identity, owner_of
from latencyprobe_operator.plan.planner import Planner
from tests.latencyprobe_operator import conftest
from tests.support.fuzz import Fuzz, seeded
from tests.support.hostile_probes import fuzzed

EVERY = 25  # objects: then plans are made anew
KEPT = 40  # objects of a kind; those that came first go
ROOM = 24 << 20
SHOP = {"name": "cart-1", "namespace": "shop", "uid": "u1", "labels": {"app": "cart"}, "resourceVersion": "7"}
CONTAINER = {"name": "main", "image": "app:1", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}
RIGHT: dict[str, dict[str, Any]] = {
    "pods": {
        "metadata": SHOP | {"annotations": {f"{decoding.ATTRIBUTE_PREFIX}team": "a"}, "ownerReferences": [
            {"kind": "ReplicaSet", "name": "cart-7d9f", "apiVersion": "apps/v1", "uid": "o1", "controller": True}]},
        "spec": {"nodeName": "n1",
                 "containers": [CONTAINER | {"env": [{"name": "OTEL_SERVICE_NAME", "value": "cart"}]}],
                 "initContainers": [CONTAINER | {"name": "side", "restartPolicy": "Always"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.4.1"}, {"ip": "fd00::1"}], "containerStatuses": [
            {"name": "main", "containerID": f"containerd://{'a' * 64}", "state": {"running": {"startedAt": "now"}}}]},
    },
    "nodes": {"metadata": {"name": "n1", "uid": "n", "labels": {decoding.MEASURE_LABEL: "true"}},
              "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}},
    "services": {"metadata": SHOP | {"name": "cart"},
                 "spec": {"clusterIPs": ["10.96.0.7"], "ports": [{"name": "web", "port": 80, "protocol": "TCP"}]}},
    "endpointslices": {"metadata": SHOP | {"name": "cart-x", "labels": {decoding.SERVICE_NAME_LABEL: "cart"}},
                       "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
                       "endpoints": [{"addresses": ["10.0.4.1"], "targetRef": {"kind": "Pod", "uid": "u1"}}]},
    "namespaces": {"metadata": {"name": "shop", "labels": {decoding.CLUSTER_SCOPE_LABEL: "allowed"}}},
}  # fmt: skip


class World:
    """A cluster that is told hostile objects, and what is planned of it."""

    def __init__(self, fuzz: Fuzz) -> None:
        self.state, self.planner, self.agents = ClusterState(), Planner(1000, b"k" * 32), Agents()
        self.counts: Counter[str] = Counter()
        self.probes: dict[Any, Any] = {}
        self._fuzz = fuzz
        self._kept: dict[str, list[Any]] = {kind: [] for kind in RIGHT}

    def told(self) -> None:
        """Take one more object."""
        fuzz = self._fuzz
        kind = fuzz.one(["pods", "pods", "pods", *RIGHT, "latencyprobes"])
        if kind == "latencyprobes":
            self._take_probe(fuzz.often(0.5))
            return
        document = fuzz.mutated(RIGHT[kind], list(RIGHT.values())) if fuzz.often(0.9) else RIGHT[kind]
        if fuzz.often(0.01):
            document = RIGHT[kind] | {
                "metadata": {"name": "big", "namespace": "shop", "annotations": {"a": "x" * 2**20}}
            }
        # as Go writes it: no half characters, no NaN
        data = json.dumps(document).encode().replace(b"\\ud800", b"\\ufffd").replace(b"NaN", b"0")
        data = data.replace(b"-Infinity", b"0").replace(b"Infinity", b"0")
        try:
            item = decoding.DECODERS[kind](decoded(data, msgspec.Raw))
        except msgspec.ValidationError:
            self.counts["left out"] += 1
            return
        self.counts["read"] += 1
        self.state.put(kind, item)
        self._kept[kind].append(key_of(item))
        if len(self._kept[kind]) > KEPT:
            self.state.drop(kind, self._kept[kind].pop(0))

    def right(self) -> None:
        """Take one of each kind as it should be."""
        for kind, document in RIGHT.items():
            self.state.put(kind, decoding.DECODERS[kind](decoded(json.dumps(document).encode(), msgspec.Raw)))
        self._take_probe(right=True)

    def _take_probe(self, right: bool) -> None:
        document = conftest.document() if right else fuzzed(self._fuzz)
        document["metadata"] |= {"namespace": "shop", "uid": "p"}
        try:
            probe = parsing.parse(document)
        except SpecError:
            self.counts["refused"] += 1
            return
        self.counts["accepted"] += 1
        self.probes[probe.namespace, probe.name] = probe

    def planned(self) -> None:
        """Make plans anew, and what else is made of the cluster."""
        changed = self.planner.update(self.probes, self.state, self.state.take_changes())
        self.agents.planned(changed, self.planner.nodes, 0.0)
        for node in changed:
            made = self.planner.plan_of(node)
            assert msgspec.json.decode(msgspec.json.encode(made), type=plan.NodePlan) == made
            assert made.digest == plan_digest.digest_of(made)
            self.counts["plans"] += 1
        for address in ("10.0.4.1", "10.96.0.7", self._fuzz.one(("", "x", "fd00::1", "::ffff:10.0.4.1", "\0"))):
            identity(address, owner_of(address, self.state), ClientHalves(self.planner, self.agents).measured)
        for probe in self.probes.values():
            planning.objectives(probe)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whatever_a_cluster_tells_is_read_or_left_out_and_plans_go_on() -> None:
    cases, fuzz = seeded("OBJECTS", 2_500)
    world, most = World(fuzz), 0
    for i in range(cases):
        world.told()
        if i % EVERY == 0:
            world.planned()
        if i == cases // 5:
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
    most = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    print(f"{dict(world.counts)}, {most / 1e6:.1f} MB more")
    assert most < ROOM
    assert min(world.counts[what] for what in ("left out", "read", "refused", "accepted")) > cases // 100
    world.right()
    world.planned()
    assert world.planner.plan_of("n1").targets, "what is right has its plan, whatever was told before"
    anew = Planner(1000, b"k" * 32)
    anew.update(world.probes, world.state, world.state.take_changes())
    assert {node: anew.plan_of(node).digest for node in anew.nodes} == {
        node: world.planner.plan_of(node).digest for node in world.planner.nodes
    }, "what it was told before leaves nothing behind"
