"""Agents are where target pods and their callers are, and nowhere else; they come and go with them."""

import time

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger
from tests.e2e.bench.workload import PORT, Workload
from tests.e2e.probes import agent_nodes, labelled_nodes, latency_probe, nothing_measured, pairs

pytestmark = pytest.mark.e2e

DEADLINE_S = 30


def test_agents_come_and_go_with_targets_and_callers(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    namespace = workload.namespace
    servers = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["server", "second"]}]}

    # Nothing to measure: no agent. (Those of an earlier test may still be ending.)
    wait_for(lambda: nothing_measured(release), DEADLINE_S, "no agent runs")

    # Target and caller on one node: no agent on the other.
    workload.serve(node="n2")
    workload.load(node="n2")
    cluster.apply(latency_probe(targets=[{"name": "rpc", "podSelector": servers, "ports": [PORT]}]), namespace)
    wait_for(lambda: pairs(jaeger, namespace), DEADLINE_S, "the pair on n2 is measured")
    assert (labelled_nodes(cluster), agent_nodes(release)) == ({"n2"}, {"n2"})

    # A new target pod on the other node: the agent comes and measures it.
    workload.serve(name="second", node="n1")
    began = time.monotonic()
    workload.load(name="other", server="second", node="n2")
    wait_for(lambda: pairs(jaeger, namespace, "second"), DEADLINE_S, "the new pod on n1 is measured")
    print(f"a new target pod on another node to its first linked trace: {time.monotonic() - began:.1f} s")

    # No target, no agent.
    cluster.kubectl("delete", "deployment", "-n", namespace, "--all")
    wait_for(lambda: nothing_measured(release), DEADLINE_S, "all agents are gone")
