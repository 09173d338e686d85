"""Installed and removed without Helm, by the commands of docs/cluster.md."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger
from tests.e2e.bench.workload import Workload
from tests.e2e.probes import MEASURE, is_true, labelled_nodes, latency_probe, pairs

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]
FAST = {"name": "fast", "target": "rpc", "threshold": "10s", "goal": "99"}


def test_plain_manifests_measure_and_go_by_two_commands(
    chart: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload, tmp_path: Path
) -> None:
    chart.uninstall()
    values = tmp_path / "values.json"
    values.write_text(json.dumps(chart.values()))
    manifests = printed("scripts/manifests", "--values", values)
    try:
        cluster.kubectl("apply", "-f", "-", stdin=manifests)
        cluster.kubectl("create", "-f", "-", stdin=printed("sh", "examples/plain/secrets.sh"))
        cluster.wait_for_rollout("deployment/latencyprobe-operator", chart.namespace)
        workload.serve()
        workload.load()
        cluster.apply(latency_probe(objectives=[FAST]), workload.namespace)
        wait_for(lambda: is_true(cluster, workload.namespace, "Measuring"), "it is measured")
        wait_for(lambda: pairs(jaeger, workload.namespace), "RPCs of both nodes are linked")
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifests, timeout_s=120)
        cluster.kubectl("label", "nodes", "--all", f"{MEASURE}-")
    assert labelled_nodes(cluster) == set()
    assert [
        one for one in cluster.items("namespaces,clusterroles,clusterrolebindings") if "latencyprobe" in name(one)
    ] == []


def name(one: dict[str, dict[str, str]]) -> str:
    return one["metadata"]["name"]


def printed(*command: str | Path) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
