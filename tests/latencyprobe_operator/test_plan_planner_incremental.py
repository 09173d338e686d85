"""The planner that follows changes has the plans of one that begins anew, whatever has changed, and whenever."""

import random
from typing import Any

import pytest

from latencyprobe import parsing
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Container, Key, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.plan import building
from latencyprobe_operator.plan import targets as targets_
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.plan.room import MOST, Most

CHANGES = 1_000
NAMESPACES, NODES, APPS = ("a", "b", "c"), ("n1", "n2", "n3", "n4"), ("cart", "web", "db")
SELECTORS: list[dict[str, Any]] = [
    {},
    *({"matchLabels": {"app": app}} for app in APPS),
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
]


class World:
    """A cluster and its LatencyProbes that change at random."""

    def __init__(self, seed: int) -> None:
        self.state, self.probes = ClusterState(), dict[Key, LatencyProbe]()
        self.random = random.Random(seed)

    def change(self) -> None:
        ns, draw = self.random.choice(NAMESPACES), self.random.random()
        if draw < 0.5:
            self.state.put("pods", self.pod(ns))
        elif draw < 0.6:
            self.state.drop("pods", (ns, f"p{self.random.randint(0, 5)}"))
        elif draw < 0.66:
            self.state.put("nodes", Node(f"id{self.random.randint(0, 1)}", self.random.choice(NODES)))
        elif draw < 0.70:
            self.state.drop("nodes", ("", self.random.choice(NODES)))
        elif draw < 0.76:
            self.state.put("namespaces", Namespace(ns, cluster_scope=self.random.random() < 0.7))
        elif draw < 0.80:
            self.state.put("services", Service(ns, "svc", (f"10.96.0.{self.random.randint(1, 9)}",), (("web", 80),)))
        elif draw < 0.82:
            self.state.drop("services", (ns, "svc"))
        elif draw < 0.90:
            named = [p for p in self.state.pods(ns) if self.random.random() < 0.7]
            entries = tuple(SliceEndpoint(p.uid, p.addresses) for p in named)
            self.state.put(
                "endpointslices", Slice(ns, "svc-1", "svc", (("web", self.random.choice([80, 81])),), entries)
            )
        elif draw < 0.97:
            made = self.probe(ns, self.random.choice(["x", "y"]))
            self.probes[made.namespace, made.name] = made
        else:
            self.probes.pop((ns, self.random.choice(["x", "y"])), None)

    def pod(self, namespace: str) -> Pod:
        r, i = self.random, self.random.randint(0, 5)
        return Pod(
            uid=f"u-{namespace}-{i}-{r.randint(0, 1)}",
            namespace=namespace,
            name=f"p{i}",
            node=r.choice([*NODES, ""]),
            labels={"app": r.choice(APPS), **({"tier": "x"} if r.random() < 0.3 else {})},
            addresses=(f"10.0.0.{r.randint(1, 40)}",),
            containers=(Container("main", r.choice("abc") * 64, "img:1"),),
            ports=(("http", r.choice([80, 81])),) if r.random() < 0.8 else (),
            numbers=(80,),
            owner_kind=r.choice(["ReplicaSet", "StatefulSet", ""]),
            owner_name="owner",
            host_network=r.random() < 0.1,
            terminating=r.random() < 0.1,
            terminal=r.random() < 0.1,
            unselectable=r.random() < 0.03,
        )

    def probe(self, namespace: str, name: str) -> LatencyProbe:
        r, role = self.random, self.random.choice(["Server", "Server", "Client"])
        scope = r.choice(["None", "Namespace", "Cluster"])
        ports = [80] if role == "Client" else r.choice([[], ["http"], [80]])
        targets = [
            {"name": "t", "podSelector": r.choice(SELECTORS), "ports": ports, "role": role, "peers": r.random() < 0.3},
            {"name": "u", "podSelector": r.choice(SELECTORS), "ports": ["http"]},
        ]
        seen = {"perspective": "Client"} if role == "Server" and scope != "None" and r.random() < 0.5 else {}
        return parsing.parse(
            {
                "apiVersion": "latencyprobe.dev/v1alpha1",
                "kind": "LatencyProbe",
                "metadata": {"name": name, "namespace": namespace, "uid": name, "generation": r.randint(1, 9)},
                "spec": {
                    "targets": targets[: r.randint(1, 2)],
                    "clients": {"scope": scope, "podSelector": r.choice(SELECTORS)},
                    "objectives": [{"name": "o", "target": "t", "threshold": "25ms", "goal": "99", **seen}],
                    "suspend": r.random() < 0.05,
                },
            }
        )


def shown(planner: Planner) -> dict[str, Any]:
    resolved = {
        key: (one.nodes, one.counts, one.refusal[0] if one.refusal else "", one.parts)
        for key, one in planner.resolved.items()
    }
    return {"nodes": planner.nodes, "resolved": resolved, **{node: planner.plan_of(node).digest for node in NODES}}


def anew(world: World, most: Most = MOST) -> dict[str, Any]:
    planner = Planner(1, b"k" * 32, most)
    planner.update(world.probes, world.state, Changes())
    return shown(planner)


@pytest.mark.long
@pytest.mark.parametrize("fixed", [1, None], ids=["fixed", "random"])
@pytest.mark.parametrize("most", [MOST, Most(60, 250), Most(160, 100)], ids=["room", "plans", "memory"])
def test_plans_after_each_change_are_those_of_a_planner_that_begins_anew(fixed: int | None, most: Most) -> None:
    seed = fixed or random.randrange(1 << 30)
    print(f"seed {seed}")
    world, planner = World(seed), Planner(1, b"k" * 32, most)
    callers = refused = 0
    for _ in range(CHANGES):
        before = {node: planner.plan_of(node) for node in NODES}
        for _ in range(world.random.choice([1, 1, 1, 3])):
            world.change()
        changed = planner.update(dict(world.probes), world.state, world.state.take_changes())
        assert anew(world, most) == shown(planner), f"seed {seed}"
        refused += planner.without_room
        after = {node: planner.plan_of(node) for node in NODES}
        differ = {node for node in NODES if after[node].digest != before[node].digest}
        assert differ == {node for node in changed if after[node].digest != before[node].digest}
        assert all(after[node].generation > before[node].generation for node in differ)
        callers += any(target.callers for plan in after.values() for target in plan.targets)
    assert most != MOST or not refused, f"seed {seed}"
    if fixed:  # others have little of it now and then
        assert callers > CHANGES / (2 if most == MOST else 10), "there was something to see"
        assert most == MOST or refused > CHANGES / 10


@pytest.mark.parametrize("most", [MOST, Most(60, 250), Most(160, 100)], ids=["room", "plans", "memory"])
def test_what_changes_while_the_planner_works_is_in_the_next_plans(most: Most) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    world, planner = World(seed), Planner(1, b"k" * 32, most)
    for _ in range(CHANGES // 5):
        for _ in planner.work(dict(world.probes), world.state, world.state.take_changes()):
            if world.random.random() < 0.3:
                world.change()
        planner.update(dict(world.probes), world.state, world.state.take_changes())
        assert anew(world, most) == shown(planner), f"seed {seed}"
        world.change()


def test_a_change_elsewhere_looks_at_nothing_and_a_callers_change_at_its_own_node(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many nodes and pods there are."""
    looked: list[str] = []
    built: list[str] = []

    def told(kind: type, method: str, nodes: list[str]) -> None:
        works = getattr(kind, method)
        monkeypatch.setattr(
            kind, method, lambda self, node, *rest, **named: nodes.append(node) or works(self, node, *rest, **named)
        )

    told(targets_._Places, "part", looked)
    told(building.Builder, "built", built)
    spaces = [Namespace(name, cluster_scope=True) for name in ("shop", "bank")]
    pods = [make.pod(f"web-{i}", namespace="bank", node=f"n{i % 3 + 1}") for i in range(9)]
    state, planner = make.state(make.pod("cart-1"), *pods, *spaces), Planner(1)
    probes = {("shop", p.name): p for p in (make.probe(), make.probe("all", clients={"scope": "Cluster"}))}

    def after(change: Any, *args: Any) -> tuple[list[str], list[str]]:
        change(*args)
        looked.clear(), built.clear()
        planner.update(probes, state, state.take_changes())
        return looked, built

    planner.update(probes, state, state.take_changes())
    assert after(state.put, "pods", make.pod("web-0", namespace="bank", node="n1", uid="new")) == (["n1"], ["n1"])
    assert after(state.put, "nodes", Node("uid-n4", "n4")) == ([], [])
    assert "n4" in planner.nodes
    assert after(state.put, "services", make.service("db", namespace="bank")) == ([], [])


@pytest.mark.parametrize(("probes", "targets"), [(20, 1), (1, 20)])
def test_a_change_without_a_pod_gives_way_for_each_latencyprobe_and_target(
    make: Any, probes: int, targets: int
) -> None:
    cart, planner = make.pod("cart-1"), Planner(1)
    state = make.state(cart)
    wanted = [{"name": f"t{number}", "podSelector": {"matchLabels": {"app": "cart"}}} for number in range(targets)]
    made = [make.probe(f"p{number}", targets=wanted, objectives=[]) for number in range(probes)]
    by_key = {("shop", probe.name): probe for probe in made}
    planner.update(by_key, state, state.take_changes())
    state.put("endpointslices", make.slice_of("cart", cart))
    assert sum(1 for _ in planner.work(by_key, state, state.take_changes())) >= 20
    assert sum(1 for _ in planner.work({}, state, state.take_changes())) >= probes, "they go"
