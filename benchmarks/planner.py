"""What the operator's planner costs by the size of the cluster: `python -m benchmarks.planner`, docs/design/scale.md.

Pure: a made-up cluster as the API server would tell of it, one process, no network. One LatencyProbe of scope Namespace
in ten pods of each namespace; the last column has ten of Cluster scope besides. Each row runs in a process of its own,
so that memory is its own.
"""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from rich.console import Console
from rich.table import Table

from latencyprobe import parsing
from latencyprobe.plan import NodePlan
from latencyprobe.plan_stream import Differences, PlanLine
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.planner import Planner

SIZES = ((500, 15_000, 100), (1_000, 30_000, 200), (5_000, 150_000, 1_000))
TARGETS = 10  # pods of each namespace that its LatencyProbe is about
CLUSTER_SCOPE = 10
TIMES = 5


class Size(NamedTuple):
    nodes: int
    pods: int
    probes: int


class Sent(NamedTuple):
    """What a change sends to agents. `whole`, `changes`: bytes, as whole plans and as changes; `changes_s`: CPU of
    finding and encoding these."""

    nodes: int
    whole: int
    changes: int
    changes_s: float


class Figures(NamedTuple):
    """Times in s of CPU, memory in bytes of resident set. `state`: of the cluster's state alone; `sent`: for a pod, a
    target pod, and both with ten of Cluster scope."""

    first: float
    pod: float
    target: float
    node: float
    cluster_first: float
    cluster_pod: float
    cluster_target: float
    state: int
    whole: int
    sent: tuple[Sent, ...]


class Cluster:
    """A cluster of a size, as the API server tells of it."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.state = ClusterState()
        for i in range(size.nodes):
            self.add_node(i)
        for i in range(size.probes):
            labels = {decoding.CLUSTER_SCOPE_LABEL: "allowed"}
            self._put("namespaces", {"metadata": {"name": f"team-{i}", "labels": labels}})
        for i in range(size.pods):
            self.put_pod(i, 0)
        for i in range(size.probes):
            self._put_service(f"team-{i}", i)

    def add_node(self, i: int) -> None:
        addresses = [{"type": "InternalIP", "address": f"192.168.{i >> 8}.{i & 255}"}]
        self._put("nodes", {"metadata": {"name": f"node-{i}", "uid": f"node-{i}"}, "status": {"addresses": addresses}})

    def put_pod(self, i: int, version: int, old: int | None = None) -> None:
        """Add pod number `i`; the first ten of a namespace are targets. `old`: the version that it replaces."""
        namespace, app, name = self._named(i, version)
        if old is not None:
            self.state.drop("pods", (namespace, self._named(i, old)[2]))
        digits = f"{i:08x}-{version:04x}"
        labels = {"app": app, "pod-template-hash": "5d8c7b9f4", "team": namespace, "version": "v1.2.3"}
        address = f"10.{(100 + version if version else 0) + (i >> 16)}.{i >> 8 & 255}.{i & 255}"
        running = {"name": "main", "containerID": f"containerd://{i:032x}{version:032x}", "state": {"running": {}}}
        self._put(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"{digits}-4000-8000-{i:012x}",
                    "labels": labels,
                    "ownerReferences": [{"kind": "ReplicaSet", "name": f"{app}-5d8c7b9f4", "controller": True}],
                },
                "spec": {
                    "nodeName": f"node-{(i * 2_654_435_761 >> 7) % self.size.nodes}",
                    "containers": [
                        {
                            "name": "main",
                            "image": f"registry.example/{namespace}/{app}:1.2.3",
                            "ports": [{"name": "http", "containerPort": 8080}],
                        }
                    ],
                },
                "status": {"phase": "Running", "podIPs": [{"ip": address}], "containerStatuses": [running]},
            },
        )

    def target(self, of: int = 0) -> int:
        """Return the number of a pod that a LatencyProbe is about."""
        return of

    def other(self, of: int = 0) -> int:
        """Return the number of a pod that only calls."""
        return self.size.probes * TARGETS + of

    def _named(self, i: int, version: int) -> tuple[str, str, str]:
        namespace = f"team-{i % self.size.probes}"
        rank = i // self.size.probes
        app = "cart" if rank < TARGETS else f"web-{rank % 10}"
        return namespace, app, f"{app}-5d8c7b9f4-{i:05x}{version}"

    def _put_service(self, namespace: str, i: int) -> None:
        metadata = {"namespace": namespace, "name": "cart"}
        port = {"name": "http", "port": 80}
        spec = {"clusterIPs": [f"10.96.{i >> 8}.{i & 255}"], "ports": [port]}
        self._put("services", {"metadata": metadata, "spec": spec})
        pods = [pod for pod in self.state.pods(namespace) if pod.labels["app"] == "cart"]
        endpoints = [{"addresses": pod.addresses, "targetRef": {"kind": "Pod", "uid": pod.uid}} for pod in pods]
        labels = {decoding.SERVICE_NAME_LABEL: "cart"}
        metadata = {"namespace": namespace, "name": "cart-abc", "labels": labels}
        self._put("endpointslices", {"metadata": metadata, "endpoints": endpoints, "ports": [{**port, "port": 8080}]})

    def _put(self, kind: str, document: object) -> None:
        self.state.put(kind, decoding.DECODERS[kind](msgspec.json.encode(document)))


def probes(size: Size, of_cluster_scope: int = 0) -> dict[Key, LatencyProbe]:
    """One LatencyProbe of each namespace, and some of Cluster scope beside the first ones."""
    found = [_probe(f"team-{i}", "checkout", "Namespace") for i in range(size.probes)]
    found += [_probe(f"team-{i}", "everybody", "Cluster") for i in range(of_cluster_scope)]
    return {(probe.namespace, probe.name): probe for probe in found}


def _probe(namespace: str, name: str, scope: str) -> LatencyProbe:
    return parsing.parse(
        {
            "apiVersion": "latencyprobe.dev/v1alpha1",
            "kind": "LatencyProbe",
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "generation": 1},
            "spec": {
                "targets": [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": ["http"]}],
                "clients": {"scope": scope},
                "objectives": [{"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99"}],
            },
        }
    )


def measured(size: Size) -> Figures:
    """Measure one size. In a fresh process."""
    base = _resident()
    cluster, few, all_ = Cluster(size), probes(size), probes(size, CLUSTER_SCOPE)
    state = _resident() - base
    planner = Planner(1, b"k" * 32)
    version = iter(range(1, 1 << 20))

    last: list[tuple[NodePlan, NodePlan]] = []

    def plan(desired: dict[Key, LatencyProbe]) -> float:
        changes, before = cluster.state.take_changes(), dict(planner.plans)
        began = time.process_time()
        changed = planner.update(desired, cluster.state, changes)
        took = time.process_time() - began
        last[:] = [(before[node], planner.plans[node]) for node in changed if node in before]
        return took

    def typical(desired: dict[Key, LatencyProbe], change: Callable[[int], None]) -> float:
        found = []
        for i in range(TIMES):
            change(i)
            found.append(plan(desired))
        return statistics.median(found)

    versions: dict[int, int] = {}
    sent: list[Sent] = []

    def replaced(i: int) -> None:
        new = next(version)
        cluster.put_pod(i, new, versions.get(i, 0))
        versions[i] = new

    first = plan(few)
    whole = _resident() - base
    pod = typical(few, lambda i: replaced(cluster.other(i)))
    sent.append(_sent(last))
    target = typical(few, lambda i: replaced(cluster.target(i)))
    sent.append(_sent(last))
    node = typical(few, lambda i: cluster.add_node(size.nodes + i))
    cluster_first = plan(all_)
    cluster_pod = typical(all_, lambda i: replaced(cluster.other(i)))
    sent.append(_sent(last))
    cluster_target = typical(all_, lambda i: replaced(cluster.target(i)))
    sent.append(_sent(last))
    return Figures(first, pod, target, node, cluster_first, cluster_pod, cluster_target, state, whole, tuple(sent))


def _sent(plans: list[tuple[NodePlan, NodePlan]]) -> Sent:
    differences, began = Differences(), time.process_time()
    changes = sum(len(msgspec.json.encode(PlanLine(change=differences.between(old, new)))) for old, new in plans)
    took = time.process_time() - began
    return Sent(len(plans), sum(len(msgspec.json.encode(PlanLine(new))) for _, new in plans), changes, took)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@click.command()
@click.option("--nodes", multiple=True, type=click.Choice([str(size[0]) for size in SIZES]), help="Only this size.")
def main(*, nodes: tuple[str, ...]) -> None:
    """Measure what the planner costs by the size of the cluster."""
    table = Table()
    sent = Table("nodes", "what changed", "plans", "bytes of whole plans", "of changes", "CPU of changes")
    for name in (
        *("nodes / pods / LatencyProbes", "first plan", "a pod replaced", "a target pod", "a node joins"),
        *("ten of Cluster scope: first", "any pod", "a target pod", "state, per pod", "state and plans"),
    ):
        table.add_column(name, justify="right")
    for size in (Size(*size) for size in SIZES):
        if nodes and str(size.nodes) not in nodes:
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(measured, (size,))
        times = [f"{s:.2f} s" if s > 1 else f"{s * 1000:.1f} ms" for s in found[:7]]
        memory = f"{found.state / size.pods:.0f} B", f"{found.whole / 1e6:.0f} MB"
        table.add_row(" / ".join(f"{n:,}" for n in size), *times, *memory)
        names = ("a pod", "a target pod", "of Cluster scope: a pod", "of Cluster scope: a target pod")
        for name, one in zip(names, found.sent, strict=True):
            bytes_ = f"{one.whole:,}", f"{one.changes:,}", f"{one.changes_s * 1000:.1f} ms"
            sent.add_row(f"{size.nodes:,}", name, f"{one.nodes:,}", *bytes_)
    for shown in (table, sent):
        Console(width=220).print(shown)


if __name__ == "__main__":
    main()
