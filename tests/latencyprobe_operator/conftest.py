"""Factories for objects of a cluster, LatencyProbes and their plans, with the defaults that most tests need; and a
real directory over TLS."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from latencyprobe import parsing, spec
from latencyprobe.api import API_VERSION
from latencyprobe.plan import AgentStatus, TargetStatus
from latencyprobe_operator.cluster.api import Api
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.plan.targets import Resolved
from latencyprobe_operator.status import conditions
from latencyprobe_operator.status.placement import Placement
from tests.latencyprobe_operator.directory_world import Play, World, world
from tests.support.certificates import make_certificate
from tests.support.waiting import until


def pod(name: str, namespace: str = "shop", node: str = "n1", **fields: Any) -> Pod:
    defaults: dict[str, Any] = {
        "uid": f"uid-{namespace}-{name}",
        "labels": {"app": name.split("-", maxsplit=1)[0]},
        "addresses": (f"10.0.{len(namespace)}.{sum(name.encode()) % 250}",),
        "containers": (Container("main", "c" * 64, "registry.example/shop/app:1.2"),),
        "ports": (("http", 8080),),
        "numbers": (8080,),
    }
    return Pod(name=name, namespace=namespace, node=node, **{**defaults, **fields})


def document(name: str = "checkout", namespace: str = "shop", **spec_fields: Any) -> dict[str, Any]:
    """A LatencyProbe as the API server has it."""
    whole = {
        "targets": [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": ["http"]}],
        "objectives": [{"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99"}],
        **spec_fields,
    }
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "generation": 1}
    return {"apiVersion": API_VERSION, "kind": "LatencyProbe", "metadata": metadata, "spec": whole}


def probe(name: str = "checkout", namespace: str = "shop", **spec_fields: Any) -> spec.LatencyProbe:
    return parsing.parse(document(name, namespace, **spec_fields))


def state(
    *items: Any, nodes: tuple[str, ...] = ("n1", "n2", "n3"), namespaces: tuple[str, ...] = ("shop",)
) -> ClusterState:
    kinds = {Pod: "pods", Service: "services", Slice: "endpointslices", Namespace: "namespaces", Node: "nodes"}
    whole = ClusterState()
    for name in nodes:
        whole.put("nodes", Node(f"uid-{name}", name))
    for name in namespaces:
        whole.put("namespaces", Namespace(name))
    for item in items:
        whole.put(kinds[type(item)], item)
    return whole


def service(name: str, namespace: str = "shop", address: str = "10.96.0.7", port: int = 80) -> Service:
    return Service(namespace, name, (address,), (("web", port),))


def slice_of(name: str, *pods: Pod, port: int = 8080, namespace: str = "shop") -> Slice:
    entries = tuple(SliceEndpoint(p.uid, p.addresses) for p in pods)
    return Slice(namespace, f"{name}-abc", name, (("web", port),), entries)


def agent_status(generation: int, **fields: Any) -> AgentStatus:
    seen = fields.pop("seen", 0)
    target = fields.pop("target", "shop/checkout/cart")
    defaults: dict[str, Any] = {
        "instance": "i1", "boot_id": "b1", "version": "0.1.0", "variants": {}, "error": "", "lost": {},
        "targets": (TargetStatus(target, seen, {"pingpong": seen}, {}),),
    }  # fmt: skip
    return AgentStatus(generation=generation, **{**defaults, **fields})


class Planned:
    """A LatencyProbe with its plans, and the agents; times in s from 0."""

    def __init__(self, *items: Any, **spec_fields: Any) -> None:
        self.probe = probe(**spec_fields)
        self.state = state(*items)
        self.planner, self.agents = Planner(1000, b"k" * 32), Agents()
        self.plan(self.probe)

    def labelled(self) -> "Planned":
        """Put our label on all nodes."""
        for node in self.state.nodes().copy().values():
            self.state.put("nodes", msgspec.structs.replace(node, measure=True))
        return self

    def plan(self, *probes: spec.LatencyProbe) -> frozenset[str]:
        """Plan these LatencyProbes; returns the nodes whose plan changed."""
        by_key = {(p.namespace, p.name): p for p in probes}
        changed = self.planner.update(by_key, self.state, self.state.take_changes())
        self.agents.planned(changed, self.planner.nodes, 0.0)
        return changed

    def report(self, node: str, now_s: float, **fields: Any) -> None:
        """Let a node's agent report that it has applied its plan."""
        plan = self.planner.plan_of(node)
        self.agents.reported(node, agent_status(plan.generation, **fields), plan, now_s)

    @property
    def resolved(self) -> Resolved:
        return self.planner.resolved[self.probe.namespace, self.probe.name]

    def states(self, now_s: float) -> dict[str, NodeState]:
        return self.agents.states(self.resolved.nodes, self.planner.plan_of, now_s)

    def conditions(self, now_s: float, placement: Placement, **kw: Any) -> tuple[conditions.Condition, ...]:
        states = self.states(now_s)
        late = conditions.late(self.resolved, states, self.agents)
        return conditions.conditions(self.resolved, states, self.agents, late=late, placement=placement, **kw)


@asynccontextmanager
async def served(routes: list[web.RouteDef]) -> AsyncIterator[Api]:
    """An API server that plays the given routes on loopback, and a connection to it."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]

        async def nobody() -> None:
            return None

        async with Api(f"http://{host}:{port}", None, nobody) as api:
            yield api
    finally:
        await runner.cleanup()


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(
        served=served,
        until=until,
        pod=pod,
        probe=probe,
        document=document,
        state=state,
        service=service,
        slice_of=slice_of,
        planned=Planned,
        status=agent_status,
    )


@pytest.fixture(scope="session")
def tls_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "tls")
    return folder


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def play(make: Any, tls_dir: Path, tmp_path: Path) -> Play:
    """Return who runs a scene in a directory over real TLS."""

    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with world(make, tls_dir, tmp_path / "sli.db") as it:
                await scene(it)

        asyncio.run(whole())

    return run


@pytest.fixture
def planned(make: Any) -> Any:
    """A LatencyProbe of one pod, whose node has its label."""
    return make.planned(make.pod("cart-1"), clients={"scope": "None"}).labelled()
