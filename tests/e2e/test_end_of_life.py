"""Deleting, killing, uninstalling: nothing hangs, nothing is measured twice, nothing is left."""

from collections.abc import Iterator
from typing import Any

import pytest

from latencyprobe.report.units import span_s
from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import PATIENCE_S, Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger
from tests.e2e.bench.workload import Workload
from tests.e2e.kernel import held_by, numbers_held, still_there
from tests.e2e.probes import conditions, is_true, latency_probe, nothing_measured, pairs, results

pytestmark = pytest.mark.e2e

CRD = "latencyprobes.latencyprobe.dev"
OBJECTIVE = {"name": "fast", "target": "rpc", "threshold": "25ms", "goal": "99", "minEvents": 20}


@pytest.fixture
def measured(release: Chart, cluster: Cluster, workload: Workload) -> str:
    """A namespace whose servers and clients are being measured on both nodes."""
    workload.serve(node="n2")
    workload.load(node="n1")
    cluster.apply(latency_probe(objectives=[OBJECTIVE]), workload.namespace)
    wait_for(lambda: is_true(cluster, workload.namespace, "Ready"), "it is measured on both nodes")
    return workload.namespace


@pytest.fixture
def without_operator(measured: str, release: Chart, cluster: Cluster) -> Iterator[None]:
    """No operator runs; whoever asks for this may bring it back."""
    scale(release, 0)
    wait_for(lambda: not operators(release), "the operator is gone")
    yield
    scale(release, 1)


def scale(chart: Chart, replicas: int) -> None:
    chart.cluster.kubectl(
        "scale", "deployment", "latencyprobe-operator", "-n", chart.namespace, f"--replicas={replicas}"
    )


def operators(chart: Chart) -> list[dict[str, Any]]:
    return chart.cluster.items("pods", chart.namespace, "app.kubernetes.io/component=operator")


def test_deleting_the_probe_ends_measuring(measured: str, release: Chart, cluster: Cluster) -> None:
    held = [held_by(pod) for pod in cluster.pods(release.agents)]
    cluster.delete("latencyprobe", "shop", measured)

    wait_for(lambda: nothing_measured(release), "labels and agents are gone")
    wait_for(lambda: not any(still_there(one) for one in held), "the kernel has let go of it all")
    wait_for(lambda: cluster.get("latencyreport", "latency", measured) is None, "the report is gone")


def test_deleting_its_namespace_ends_measuring(measured: str, release: Chart, cluster: Cluster) -> None:
    held = [held_by(pod) for pod in cluster.pods(release.agents)]
    cluster.kubectl("delete", "namespace", measured, f"--timeout={PATIENCE_S}s")

    wait_for(lambda: nothing_measured(release), "labels and agents are gone")
    wait_for(lambda: not any(still_there(one) for one in held), "the kernel has let go of it all")


def test_deleting_the_definition_ends_measuring_and_with_it_back_a_probe_is_measured_again(
    measured: str, release: Chart, cluster: Cluster
) -> None:
    before = {pod["metadata"]["uid"]: restarts_of(pod) for pod in operators(release)}
    cluster.kubectl("delete", "crd", CRD, f"--timeout={PATIENCE_S}s")
    wait_for(lambda: nothing_measured(release), "labels and agents are gone")

    release.install()  # Helm makes what is missing
    wait_for(lambda: cluster.apply(latency_probe(), measured), "the API server knows LatencyProbes")
    wait_for(lambda: is_true(cluster, measured, "Measuring"), "it is measured again")
    assert {pod["metadata"]["uid"]: restarts_of(pod) for pod in operators(release)} == before


def test_one_label_stops_all_measuring_and_taking_it_back_begins_it_again(
    measured: str, release: Chart, cluster: Cluster
) -> None:
    held = [held_by(pod) for pod in cluster.pods(release.agents)]
    cluster.kubectl("label", "namespace", release.namespace, "latencyprobe.dev/suspend=true")
    try:
        wait_for(lambda: not any(still_there(one) for one in held), "nothing is in the kernel")
        wait_for(lambda: nothing_measured(release), "labels and agents are gone")
        wait_for(lambda: conditions(cluster, measured)["ProbesReady"][1] == "Suspended", "the status says why")
    finally:
        cluster.kubectl("label", "namespace", release.namespace, "latencyprobe.dev/suspend-")
    wait_for(lambda: is_true(cluster, measured, "Measuring"), "it is measured again")


@pytest.mark.parametrize("kind", ["latencyprobe", "namespace", "crd"])
def test_deletion_does_not_wait_for_a_dead_operator(
    without_operator: None, measured: str, release: Chart, cluster: Cluster, kind: str
) -> None:
    name = {"latencyprobe": "shop", "namespace": measured, "crd": CRD}[kind]
    cluster.kubectl("delete", kind, name, "-n", measured, f"--timeout={PATIENCE_S}s")

    scale(release, 1)
    wait_for(lambda: nothing_measured(release), "labels and agents are gone after the operator's return")


def test_killed_agent_comes_back_measures_on_and_shows_its_gap(
    measured: str, release: Chart, cluster: Cluster, jaeger: Jaeger
) -> None:
    (before,) = agent_on(release, "n2")
    held = held_by(before)
    gaps = coverage(cluster, measured)["gaps"]
    container = before["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    cluster.in_node("n2", "ctr", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", container)

    (after,) = wait_for(lambda: restarted(release, "n2"), "the agent is ready again")
    known = len(pairs(jaeger, measured))
    wait_for(lambda: len(pairs(jaeger, measured)) > known, "RPCs are linked again")

    wait_for(lambda: not still_there(held), "the kernel has let go of what it held")
    # evidence is attached after the first plan: the other node's agent has had the time for it
    (other,) = agent_on(release, "n1")
    wait_for(lambda: numbers_held(after) == numbers_held(other), "it holds what an agent holds, once")
    # the minute must be over, its counts have arrived, and two evaluations may pass
    wait_for(lambda: span_s(coverage(cluster, measured)["gaps"]) > span_s(gaps), "the report shows the gap")


def test_measuring_goes_on_without_the_operator(
    measured: str, release: Chart, cluster: Cluster, jaeger: Jaeger, without_operator: None
) -> None:
    """Who the peers are is known for 15 s more, and so whose span is whose parent."""
    known, before = served(jaeger, measured), restarts(release)

    wait_for(lambda: served(jaeger, measured) > known + 100, "RPCs have spans without an operator")
    assert restarts(release) == before
    assert len(before) == 2


def served(jaeger: Jaeger, namespace: str) -> int:
    """How many SERVER spans there are."""
    traces = jaeger.traces("server", {"k8s.namespace.name": namespace}, limit=20_000)
    return sum(span.kind == "server" for trace in traces for span in trace)


def agent_on(chart: Chart, node: str) -> list[dict[str, Any]]:
    return [pod for pod in chart.cluster.pods(chart.agents) if pod["spec"]["nodeName"] == node]


def restarts(chart: Chart) -> dict[str, int]:
    return {pod["metadata"]["name"]: restarts_of(pod) for pod in chart.cluster.pods(chart.agents)}


def restarts_of(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def restarted(chart: Chart, node: str) -> list[dict[str, Any]]:
    states = [(pod, pod["status"]["containerStatuses"][0]) for pod in agent_on(chart, node)]
    return [pod for pod, state in states if state["restartCount"] == 1 and state["ready"]]


def coverage(cluster: Cluster, namespace: str) -> dict[str, float]:
    return wait_for(lambda: results(cluster, namespace).get("fast"), "the report has the objective")["coverage"]
