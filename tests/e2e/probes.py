"""LatencyProbes as a user applies them, and what one looks at then: status, reports, node labels, agents, spans."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import STATE, Cluster
from tests.e2e.bench.jaeger import Jaeger, Span, linked
from tests.e2e.bench.workload import PORT

MEASURE = "latencyprobe.dev/measure"


def latency_probe(name: str = "shop", **spec: Any) -> dict[str, Any]:
    """A LatencyProbe for the bench's servers (`app: server`); every RPC becomes a span."""
    target = {"name": "rpc", "podSelector": {"matchLabels": {"app": "server"}}, "ports": [PORT]}
    return {
        "apiVersion": "latencyprobe.dev/v1alpha1",
        "kind": "LatencyProbe",
        "metadata": {"name": name},
        "spec": {"targets": [target], "spans": {"ratio": "1", "maxPerSecond": 2000}} | spec,
    }


def conditions(cluster: Cluster, namespace: str, name: str = "shop") -> dict[str, tuple[str, str, str]]:
    """(status, reason, message) of each condition of a LatencyProbe."""
    probe = cluster.get("latencyprobe", name, namespace) or {}
    found = probe.get("status", {}).get("conditions", [])
    return {one["type"]: (one["status"], one["reason"], one.get("message", "")) for one in found}


def is_true(cluster: Cluster, namespace: str, condition: str, name: str = "shop") -> bool:
    return conditions(cluster, namespace, name).get(condition, ("",))[0] == "True"


def results(cluster: Cluster, namespace: str) -> dict[str, dict[str, Any]]:
    """Each objective's result in the namespace's LatencyReport, by the objective's name."""
    report = cluster.get("latencyreport", "latency", namespace) or {}
    return {one["objective"]: one for one in report.get("results", [])}


def latencyprobe(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, through the user's own kubectl."""
    path = f"{STATE / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(STATE / "kubeconfig"), "PATH": path}
    command = [Path(sys.executable).with_name("latencyprobe"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def pairs(jaeger: Jaeger, namespace: str, service: str = "server") -> list[tuple[Span, Span]]:
    """Linked (client, server) spans of a service of this namespace."""
    return linked(jaeger.traces(service, {"k8s.namespace.name": namespace}, limit=20_000))


def labelled_nodes(cluster: Cluster) -> set[str]:
    """The nodes that the operator wants an agent on."""
    return {one["metadata"]["name"] for one in cluster.items("nodes", selector=f"{MEASURE}=true")}


def agent_nodes(chart: Chart) -> set[str]:
    """The nodes that have an agent's pod, also one that is about to end."""
    return {one["spec"].get("nodeName", "") for one in chart.cluster.items("pods", chart.agents)}


def sole_agent(chart: Chart) -> list[dict[str, Any]]:
    """The agent's pod, once there is only one; agents for LatencyProbes of before take a moment to go."""
    found = chart.cluster.pods(chart.agents)
    return found if len(found) == 1 else []


def nothing_measured(chart: Chart) -> bool:
    """Whether no node has the label and no node has an agent."""
    return not labelled_nodes(chart.cluster) | agent_nodes(chart)
