"""Agents are where target pods and their callers are, and nowhere else; they come and go with them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span
from tests.e2e.bench.workload import PORT, Workload
from tests.e2e.probes import agent_nodes, conditions, is_true, labelled_nodes, latency_probe, nothing_measured, pairs

pytestmark = pytest.mark.e2e


def test_agents_come_and_go_with_targets_and_callers(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    namespace = workload.namespace
    servers = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["server", "second"]}]}

    # Nothing to measure: no agent. (Those of an earlier test may still be ending.)
    wait_for(lambda: nothing_measured(release), "no agent runs")

    # Target and caller on one node: no agent on the other.
    workload.serve(node="n2")
    workload.load(node="n2")
    cluster.apply(latency_probe(targets=[{"name": "rpc", "podSelector": servers, "ports": [PORT]}]), namespace)
    wait_for(lambda: pairs(jaeger, namespace), "the pair on n2 is measured")
    assert (labelled_nodes(cluster), agent_nodes(release)) == ({"n2"}, {"n2"})

    # A new target pod on the other node: the agent comes and measures it.
    workload.serve(name="second", node="n1")
    began = time.monotonic()
    workload.load(name="other", server="second", node="n2")
    wait_for(lambda: pairs(jaeger, namespace, "second"), "the new pod on n1 is measured")
    print(f"a new target pod on another node to its first linked trace: {time.monotonic() - began:.1f} s")

    # No target, no agent.
    cluster.kubectl("delete", "deployment", "-n", namespace, "--all")
    wait_for(lambda: nothing_measured(release), "all agents are gone")


def test_a_node_that_callers_leave_has_its_agent_when_the_next_ones_come(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    """Pods of a CronJob: each is there for seconds, on a node where nothing else is measured."""
    namespace, rpcs = workload.namespace, 400

    def ready() -> bool:
        return is_true(cluster, namespace, "ProbesReady") and agent_nodes(release) == {"n1", "n2"}

    def clients_halves() -> int:
        return len({client.span_id for client, _ in pairs(jaeger, namespace) if is_of(client, "job-2")})

    workload.serve(node="n2")
    cluster.apply(latency_probe(), namespace)
    workload.call(500, "--rate", "100", name="job-1", node="n1")
    wait_for(ready, "n1 has an agent, though its caller has ended")
    cluster.wait_for_rollout("daemonset/latencyprobe-agent", release.agents)
    workload.call(rpcs, "--rate", "10", name="job-2", node="n1")
    # what was called before the agent heard of the pod is not measured
    wait_for(lambda: clients_halves() > rpcs // 4, "the next one is measured")
    assert labelled_nodes(cluster) == {"n1", "n2"}
    cluster.kubectl("delete", "latencyprobe", "-n", namespace, "--all")
    wait_for(lambda: nothing_measured(release), "who asks for nothing any more has no agent")


def is_of(span: Span, pod: str) -> bool:
    return span.resource.get("k8s.pod.name") == pod


def test_a_cordon_keeps_no_agent_away_and_a_drain_and_a_scale_to_zero_take_it_away(
    release: Chart, cluster: Cluster, workload: Workload
) -> None:
    namespace = workload.namespace

    def measured() -> bool:
        return is_true(cluster, namespace, "ProbesReady") and agent_nodes(release) == {"n2"}

    def not_asked_for() -> bool:
        reason = conditions(cluster, namespace).get("ProbesReady", ("", ""))[1]
        return nothing_measured(release) and reason == "NoMatchingPods"

    workload.serve(node="n2")
    with undone(cluster, "uncordon", "n2"):
        cluster.kubectl("cordon", "n2")
        cluster.apply(latency_probe(), namespace)
        wait_for(measured, "the cordoned node is measured")
        drain = ("drain", "n2", "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=server")
        cluster.kubectl(*drain, timeout_s=120)
        wait_for(not_asked_for, "the drained node is left alone")
    wait_for(measured, "its pod is back, and so is the agent")
    for replicas, then in ((0, not_asked_for), (1, measured)):
        cluster.kubectl("scale", "deployment", "server", "-n", namespace, f"--replicas={replicas}")
        wait_for(then, f"{replicas} pods are followed")


def test_a_taint_that_agents_do_not_tolerate_is_named_until_it_goes(
    chart: Chart, cluster: Cluster, workload: Workload
) -> None:
    chart.install({"agent": {"tolerations": []}})
    workload.serve(node="n2")
    taint = "latencyprobe-test=dedicated:NoSchedule"

    def message() -> str:
        return conditions(cluster, workload.namespace).get("ProbesReady", ("", "", ""))[2]

    with undone(cluster, "taint", "node", "n2", f"{taint}-"):
        cluster.kubectl("taint", "node", "n2", taint)
        cluster.apply(latency_probe(), workload.namespace)
        wait_for(lambda: f"the node's taint {taint} keeps agents away" in message(), "it is named")
    wait_for(lambda: is_true(cluster, workload.namespace, "ProbesReady"), "the agent comes")


@contextmanager
def undone(cluster: Cluster, *words: str) -> Iterator[None]:
    """At the end of the block, kubectl does this, whatever became of it."""
    try:
        yield
    finally:
        cluster.kubectl(*words)
