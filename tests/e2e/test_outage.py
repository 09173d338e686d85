"""The API server stands still for minutes: measuring and plans go on, and each count arrives once afterwards."""

import ssl
import urllib.request
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger
from tests.e2e.bench.workload import PORT, Workload, pod
from tests.e2e.probes import agent_nodes, is_true, latency_probe, pairs, results

pytestmark = pytest.mark.e2e

RPCS, PER_S = 9_200, 40  # 230 s: the outage lies within
OBJECTIVES = [
    {"name": "fast", "target": "rpc", "threshold": "10s", "goal": "99"},
    {"name": "fast-for-callers", "target": "rpc", "perspective": "Client", "threshold": "10s", "goal": "99"},
]


def test_api_server_that_stands_still_for_two_minutes_costs_no_plan_and_each_count_arrives_once(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    namespace = workload.namespace
    workload.serve(node="n2")
    cluster.apply(latency_probe(objectives=OBJECTIVES), namespace)
    wait_for(lambda: is_true(cluster, namespace, "ProbesReady"), "agents are ready")
    call(cluster, namespace)
    wait_for(lambda: is_true(cluster, namespace, "Measuring"), "it is measured")
    wait_for(lambda: agent_nodes(release) == {"n1", "n2"}, "the client's node has an agent")
    cluster.wait_for_rollout("daemonset/latencyprobe-agent", release.agents)
    operator = operators(release)[0]
    before = containers(release)

    with cluster.frozen("kube-apiserver"):
        wait_for(lambda: "silent for" in readiness(operator), "the operator says how old what it serves is", 200)
        known = len(pairs(jaeger, namespace))
        wait_for(lambda: len(pairs(jaeger, namespace)) > known + 100, "RPCs of both nodes are linked meanwhile")

    wait_for(lambda: phase(cluster, namespace) == "Succeeded", "the client has made all its RPCs", 420)
    wait_for(lambda: counted(cluster, namespace)["fast"] == RPCS, "each counts once", 240)
    # an agent comes to the client's node with the client, and misses what it did before
    wait_for(lambda: RPCS - 60 * PER_S < counted(cluster, namespace)["fast-for-callers"] <= RPCS, "for callers too")
    assert containers(release) == before, "nothing was started again"
    wait_for(lambda: readiness(operator) == "ok", "what is served is of now again")


def call(cluster: Cluster, namespace: str) -> None:
    """Start a client that makes its RPCs evenly, and do not wait for it."""
    arguments = ["client", "--address", f"server:{PORT}", "--total", str(RPCS), "--rate", str(PER_S), "--threads", "2"]
    template = pod(arguments, "n1", {"app": "client"})
    template["metadata"]["name"] = "client"
    template["spec"]["restartPolicy"] = "Never"
    cluster.apply({"apiVersion": "v1", "kind": "Pod", **template}, namespace)


def phase(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("pod", "client", namespace)
    return str(found["status"].get("phase")) if found else ""


def counted(cluster: Cluster, namespace: str) -> dict[str, int]:
    return {name: one["events"] for name, one in results(cluster, namespace).items()}


def operators(chart: Chart) -> list[dict[str, Any]]:
    return chart.cluster.pods(chart.namespace, "app.kubernetes.io/component=operator")


def readiness(operator: dict[str, Any]) -> str:
    """What the operator's pod answers to /readyz, asked without the API server; empty when it does not."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    url = f"https://{operator['status']['podIP']}:8443/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5, context=anybody) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def containers(chart: Chart) -> set[tuple[str, int]]:
    """Which containers run, and how often each was started again."""
    pods = [*operators(chart), *chart.cluster.pods(chart.agents)]
    return {(one["metadata"]["uid"], one["status"]["containerStatuses"][0]["restartCount"]) for one in pods}
