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

from benchmarks.made_cluster import CLUSTER_SCOPE, Cluster, Document, Size, probes
from latencyprobe import parsing
from latencyprobe.plan import NodePlan
from latencyprobe.plan_stream import Differences, PlanLine
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.planner import Planner

SIZES = ((500, 15_000, 100), (1_000, 30_000, 200), (5_000, 150_000, 1_000))
TIMES = 5


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


class _State(ClusterState):
    """The operator's state, as it is told."""

    def take(self, kind: str, document: Document) -> None:
        self.put(kind, decoding.DECODERS[kind](msgspec.json.encode(document)))

    def lose(self, kind: str, document: Document) -> None:
        self.drop(kind, (document["metadata"].get("namespace", ""), document["metadata"]["name"]))


def desired(size: Size, of_cluster_scope: int = 0) -> dict[Key, LatencyProbe]:
    """Return the LatencyProbes, parsed."""
    found = map(parsing.parse, probes(size, of_cluster_scope))
    return {(probe.namespace, probe.name): probe for probe in found}


def measured(size: Size) -> Figures:
    """Measure one size. In a fresh process."""
    base = _resident()
    known = _State()
    cluster, few, all_ = Cluster(size, known.take, known.lose), desired(size), desired(size, CLUSTER_SCOPE)
    state = _resident() - base
    planner = Planner(1, b"k" * 32)

    last: list[tuple[NodePlan, NodePlan]] = []

    def plan(wanted: dict[Key, LatencyProbe]) -> float:
        changes, before = known.take_changes(), dict(planner.plans)
        began = time.process_time()
        changed = planner.update(wanted, known, changes)
        took = time.process_time() - began
        last[:] = [(before[node], planner.plans[node]) for node in changed if node in before]
        return took

    def typical(wanted: dict[Key, LatencyProbe], change: Callable[[int], object]) -> float:
        found = []
        for i in range(TIMES):
            change(i)
            found.append(plan(wanted))
        return statistics.median(found)

    sent: list[Sent] = []
    first = plan(few)
    whole = _resident() - base
    pod = typical(few, lambda i: cluster.replace(cluster.other(i)))
    sent.append(_sent(last))
    target = typical(few, lambda i: cluster.replace(cluster.target(i)))
    sent.append(_sent(last))
    node = typical(few, lambda i: cluster.add_node(size.nodes + i))
    cluster_first = plan(all_)
    cluster_pod = typical(all_, lambda i: cluster.replace(cluster.other(i)))
    sent.append(_sent(last))
    cluster_target = typical(all_, lambda i: cluster.replace(cluster.target(i)))
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
