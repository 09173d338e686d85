"""What it takes to look at the statuses of all LatencyProbes, which is done every 2 s in which an agent reports.

Pure: no API server, no agents; CPU time of one core. `python -m benchmarks.statuses`; docs/design/scale.md.
"""

import statistics
import time

import click
import msgspec

from benchmarks.made_cluster import CLUSTER_SCOPE, Cluster, Document, Size, probes
from latencyprobe.plan import AgentStatus, TargetStatus
from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Loops, Trigger
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.registry import Registry
from latencyprobe_operator.status.statuses import Statuses, Told
from latencyprobe_operator.status.writer import StatusWriter

TIMES = 5
NOW_S = 1_000.0
NOW = "2026-01-01T00:00:00Z"


def statuses(size: Size) -> Statuses:
    """Return the loop of a cluster in which every agent follows its plan."""
    state, registry, planner, agents = ClusterState(), Registry(lambda: None), Planner(1, b"k" * 32), Agents()

    def take(kind: str, document: Document) -> None:
        state.put(kind, decoding.DECODERS[kind](msgspec.json.encode(document)))

    Cluster(size, take, lambda *_: None)
    for probe in probes(size, CLUSTER_SCOPE):
        registry.put(probe)
    changed = planner.update(registry.probes, state, state.take_changes())
    agents.planned(changed, planner.nodes, NOW_S)
    for node in planner.nodes:
        plan = planner.plan_of(node)
        targets = tuple(TargetStatus(t.id, 1000, {"pingpong": 1000}, {}) for t in plan.targets)
        status = AgentStatus(node, "boot", "0", plan.generation, {"send": "tp_btf"}, "", targets, {})
        agents.reported(node, status, plan, NOW_S)
    writer = StatusWriter(FakeCluster(), Writes(), state)
    placement = Placement(state, "lp-agents", ())
    told = Told(lambda _: [], lambda: placement)
    return Statuses(registry, planner, agents, writer, told=told, changed=Trigger(), loops=Loops())


def turn_s(looked_at: Statuses) -> float:
    """Return the CPU time of one turn, without its writes."""
    began_s = time.process_time()
    for _ in looked_at.desired(NOW_S, NOW):
        pass
    return time.process_time() - began_s


@click.command()
@click.option("--nodes", multiple=True, type=int, default=(500, 1_000, 5_000), show_default=True)
def main(*, nodes: tuple[int, ...]) -> None:
    """Measure a turn of the statuses by the size of the cluster."""
    for count in nodes:
        looked_at = statuses(Size(count, count * 30, count // 5))
        click.echo(f"{count:,} nodes: {statistics.median(turn_s(looked_at) for _ in range(TIMES)) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
