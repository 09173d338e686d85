"""Ten tenants whose pods, labels, ports and LatencyProbes have equal names, on three nodes. What bears a tenant's
canary is its own. For test_tenants.py."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from latencyprobe import parsing
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Container, Key, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.state import ClusterState

TENANTS = tuple(f"tenant-{i}" for i in range(10))
ALLOWED = frozenset(TENANTS[:2])  # may name callers of the whole cluster
NODES = {f"n{i}": f"192.0.2.{i}" for i in range(1, 4)}
APPS = ("cart", "web", "db")
PORTS = (8080, 8081)
SELECTORS: list[dict[str, Any]] = [
    {},
    *({"matchLabels": {"app": app}} for app in APPS),
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["cart"]}]},
]


def canary(namespace: str) -> str:
    return f"canary{namespace.rpartition('-')[2]}"


class End(NamedTuple):
    """What a client dials, and the pod that answers there."""

    address: str
    port: int
    server: Pod


class World:
    """`state`: as the operator knows it; `probes`: all LatencyProbes."""

    def __init__(self, seed: int) -> None:
        self.state, self.probes = ClusterState(), dict[Key, LatencyProbe]()
        self._random = random.Random(seed)
        self._made = 0
        self._free = [f"10.0.{high}.{low}" for high in range(4) for low in range(1, 250)]
        for name, address in NODES.items():
            self.state.put("nodes", Node(f"uid-{name}", name, (address,)))
        for number, tenant in enumerate(TENANTS):
            self.state.put("namespaces", Namespace(tenant, cluster_scope=tenant in ALLOWED))
            self.state.put("services", Service(tenant, "cart", (f"10.96.0.{number + 1}",), (("web", 80),)))
            for place in range(4):
                self.replace(tenant, place)

    def change(self) -> None:
        """Another LatencyProbe of some tenant; now and then other labels, another pod, another EndpointSlice too."""
        tenant = self._random.choice(TENANTS)
        name = self._random.choice(["x", "y"])
        self.probes[tenant, name] = self._probe(tenant, name)
        if self._random.random() < 0.3:
            self.replace(tenant, self._random.randrange(4))
        if self._random.random() < 0.1:
            self._slice(tenant)

    def replace(self, tenant: str, place: int) -> None:
        """Another pod of the same name, where there was one, with other labels: its address is for the next tenant."""
        old = self.state.pod((tenant, f"p-{place}"))
        if old is not None and not old.host_network:
            self._free.append(old.addresses[0])
        self._made += 1
        r, node, shared = self._random, self._random.choice([*NODES]), place == 3
        port = 9000 + TENANTS.index(tenant)  # the scheduler gives one of a node to one pod
        mark = canary(tenant)
        pod = Pod(
            uid=f"{mark}-{self._made}",
            namespace=tenant,
            name=f"p-{place}",
            node=node,
            labels={"app": r.choice(APPS), "team": mark} | ({"tier": "x"} if r.random() < 0.3 else {}),
            addresses=(NODES[node] if shared else self._free.pop(),),
            containers=(Container("main", f"{self._made:064x}", f"registry.example/{mark}:1"),),
            ports=(("http", port if shared else 8080),),
            numbers=(port,) if shared else (8080,),
            attributes=(("service.name", f"{mark}-cart"),),
            owner_kind=r.choice(["ReplicaSet", "StatefulSet"]),
            owner_name=f"{mark}-owner",
            host_network=shared,
        )
        self.state.put("pods", pod)

    def owners(self) -> dict[str, set[str]]:
        """Return the tenants that have each address: of a node's those of its host-network pods."""
        found: dict[str, set[str]] = {}
        for pod in self.state.pods():
            found.setdefault(pod.addresses[0], set()).add(pod.namespace)
        return found | {self.state.services(tenant)["cart"].addresses[0]: {tenant} for tenant in TENANTS}

    def ends(self) -> Iterator[End]:
        """Yield what can be dialled, besides Services."""
        for pod in self.state.pods():
            for port in pod.numbers if pod.host_network else PORTS:
                yield End(pod.addresses[0], port, pod)

    def _slice(self, tenant: str) -> None:
        """Make a tenant's EndpointSlice, or one by hand: with others' pods, or their addresses beside its own pods."""
        own, others = [*self.state.pods(tenant)], [*self.state.pods()]
        entries = [SliceEndpoint(pod.uid, pod.addresses) for pod in self._random.choice([own, others])[:5]]
        stolen = self._random.choice(others)
        entries.append(SliceEndpoint(own[0].uid, self._random.choice([own[0].addresses, stolen.addresses])))
        self.state.put("endpointslices", Slice(tenant, "cart-1", "cart", (("web", 8080),), tuple(entries)))

    def _probe(self, tenant: str, name: str) -> LatencyProbe:
        r, role = self._random, self._random.choice(["Server", "Server", "Client"])
        scope = r.choice(["None", "Namespace", "Cluster"])
        ports: list[Any] = [80, 8080] if role == "Client" else r.choice([[], ["http"], [8080], [9001, 9002]])
        targets = [
            {"name": "t", "podSelector": r.choice(SELECTORS), "ports": ports, "role": role, "peers": r.random() < 0.3},
            {"name": "u", "podSelector": r.choice(SELECTORS), "ports": ["http"]},
        ]
        objective = {"name": "o", "target": "t", "threshold": f"{r.choice([5, 25])}ms", "goal": "99"}
        return parsing.parse(
            {
                "apiVersion": "latencyprobe.dev/v1alpha1",
                "kind": "LatencyProbe",
                "metadata": {"name": name, "namespace": tenant, "uid": f"{canary(tenant)}-{name}", "generation": 1},
                "spec": {
                    "targets": targets,
                    "clients": {"scope": scope, "podSelector": r.choice(SELECTORS)},
                    "objectives": [objective],
                    "evidence": {"syscalls": {}} if r.random() < 0.5 else {},
                },
            }
        )
