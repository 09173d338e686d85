"""The namespace's SLO report: exact counts of a clean run, and the stage that burned the budget of a slow one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.chart import Chart
from bench.cluster import STATE, Cluster, wait_for
from bench.jaeger import Jaeger, linked
from bench.workload import Workload
from probes import is_true, latency_probe, pairs, results

pytestmark = pytest.mark.e2e

RPCS = 2000
OBJECTIVES = [
    {"name": "fast", "target": "rpc", "threshold": "25ms", "goal": "99", "minEvents": 20},
    {"name": "fast-for-callers", "target": "rpc", "threshold": "25ms", "goal": "99", "perspective": "Client"},
]


@pytest.mark.timeout(420, func_only=True)
def test_report_counts_every_rpc_and_names_the_stage_of_the_slow_ones(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    namespace = workload.namespace
    workload.serve(node="n2")
    cluster.apply(latency_probe(objectives=OBJECTIVES), namespace)
    wait_for(lambda: is_true(cluster, namespace, "ProbesReady"), 30, "agents are ready")

    # Clean: every RPC is one event on each side and one linked pair.
    sent = workload.call(RPCS, "--rate", "400", "--threads", "4", "--rpcs", "50")
    assert (sent["answered"], sent["errors"]) == (RPCS, 0)
    wait_for(lambda: len(pairs(jaeger, namespace)) >= RPCS, 60, f"{RPCS} linked pairs in Jaeger")
    assert len({server.span_id for _, server in pairs(jaeger, namespace)}) == RPCS
    clean = reported(cluster, namespace, "events", RPCS, 90)
    assert [clean[name]["state"] for name in clean] == ["Met", "Met"]

    # Slow: 40 ms in the server before each response.
    workload.delay(40)
    workload.call(RPCS // 10, "--threads", "8", name="slow-client")
    slow = reported(cluster, namespace, "state", "Violated", 120)
    assert slow["fast"]["bad"] == RPCS // 10
    burned = slow["fast"]["badByStage"][0]
    assert (burned["stage"], burned["events"]) == ("process", RPCS // 10)
    slowest = slow["fast"]["slowest"][0]
    assert max(server.duration_us for _, server in linked([jaeger.trace(slowest["traceId"])])) >= 40_000
    status = (cluster.get("latencyprobe", "shop", namespace) or {})["status"]
    assert status["slo"] == "Violated"

    # The same report through the user's own kubectl.
    told = report(namespace, "-o", "json", "--fail-on", "violated")
    assert told.returncode == 1
    assert json.loads(told.stdout)["results"][0]["state"] == "Violated"
    assert "process" in report(namespace).stdout


def reported(cluster: Cluster, namespace: str, field: str, value: object, deadline_s: float) -> dict[str, Any]:
    """The results by objective, as soon as that field of both has that value."""

    def found() -> dict[str, Any]:
        now = results(cluster, namespace)
        return now if [one[field] for one in now.values()] == [value] * len(OBJECTIVES) else {}

    return wait_for(found, deadline_s, f"{field} {value} for {len(OBJECTIVES)} objectives")


def report(namespace: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "KUBECONFIG": str(STATE / "kubeconfig"),
        "PATH": f"{STATE / 'bin'}:{os.environ['PATH']}",
    }
    command = [Path(sys.executable).with_name("latencyprobe"), "report", "-n", namespace, *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
