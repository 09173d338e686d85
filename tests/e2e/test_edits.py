"""A LatencyProbe is edited with kubectl under load: its agents go on, it is Ready again, and its counts grow."""

import json
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.workload import PORT, Workload
from tests.e2e.probes import conditions, latency_probe, nothing_measured, results

pytestmark = pytest.mark.e2e

(TARGET,) = latency_probe()["spec"]["targets"]
CALLS = {"name": "calls", "podSelector": {"matchLabels": {"app": "client"}}, "ports": [PORT], "role": "Client"}
FAST = {"name": "fast", "target": "rpc", "threshold": "25ms", "goal": "99", "minEvents": 20}
CALLERS = {**FAST, "name": "callers", "perspective": "Client"}
STILL = latency_probe("still", objectives=[{**FAST, "name": "still", "threshold": "5ms"}])  # on the same sockets
EDITS: list[dict[str, Any]] = [  # merge patches of the spec, one upon the other
    {"objectives": [{**FAST, "threshold": "40ms"}, CALLERS]},
    {"objectives": [{**FAST, "threshold": "1ms"}, {**CALLERS, "threshold": "2ms"}]},
    {"objectives": [{**FAST, "threshold": "3ms", "goal": "90", "window": "7d", "minEvents": 1}]},
    {"objectives": [{**FAST, "threshold": "3ms", "errorsCountAsBad": False}]},
    {"objectives": [{**FAST, "threshold": "3ms", "perspective": "Client"}]},
    {"objectives": []},
    {"objectives": [{**FAST, "threshold": "7ms"}, {**FAST, "name": "new", "threshold": "8ms"}]},
    {"targets": [{**TARGET, "setupTurns": 1}]},
    {"targets": [{**TARGET, "pause": "5s", "tls": True, "peers": True}]},
    {"targets": [{**TARGET, "ports": []}]},
    {"targets": [TARGET, CALLS], "objectives": [{**FAST, "target": "calls", "threshold": "6ms"}]},
    {"targets": [{**TARGET, "podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, CALLS]},
    {"clients": {"podSelector": {"matchLabels": {"app": "client"}}}},
    {"spans": {"slowerThan": "1ms", "ratio": "0.5", "maxPerSecond": 10, "stages": "Events"}},
    {"spans": {"slowerThan": None, "ratio": "0.01", "maxPerSecond": 1000, "stages": None}},
    {"evidence": {"retransmits": False, "handshakes": False, "tcprt": True}},
    {"evidence": {"retransmits": True, "handshakes": True, "tcprt": False}},
    {"suspend": True},
    {"suspend": False, "objectives": [{**FAST, "threshold": "9ms"}, {**CALLERS, "threshold": "11ms"}]},
]


@pytest.fixture
def measured(chart: Chart, cluster: Cluster, workload: Workload) -> str:
    """A namespace under load with two LatencyProbes, `shop` and `still`; their agents export metrics every second."""
    chart.install({"agent": {"extraEnv": [{"name": "OTEL_METRIC_EXPORT_INTERVAL", "value": "1000"}]}})
    wait_for(lambda: nothing_measured(chart), "the agents of earlier tests are gone")
    workload.serve(node="n2")
    workload.load(node="n1")
    cluster.apply([latency_probe(objectives=[FAST, CALLERS]), STILL], workload.namespace)
    for name in ("shop", "still"):
        wait_for(lambda name=name: ready(cluster, workload.namespace, name), f"{name} is measured")
    return workload.namespace


def test_edits_under_load_restart_no_agent_and_counts_go_on(chart: Chart, cluster: Cluster, measured: str) -> None:
    agents = containers(chart)
    assert len(agents) == 2
    first = wait_for(lambda: events(cluster, measured, "still"), "the report counts")
    for edit in EDITS:
        patch = json.dumps({"spec": edit})
        cluster.kubectl("patch", "latencyprobe", "shop", "-n", measured, "--type=merge", "-p", patch)
        reached = suspended if edit.get("suspend") else ready
        wait_for(lambda reached=reached: reached(cluster, measured), f"Ready again after {patch}")
        assert containers(chart) == agents, f"after {patch}"
    before = events(cluster, measured, "still")
    assert before >= first

    for name, least in (("still", before), ("fast", 0), ("callers", 0)):
        wait_for(
            lambda name=name, least=least: events(cluster, measured, name) > least,
            f"the counts of {name} grow",
        )
    assert containers(chart) == agents, "the same containers, never restarted"
    for name in agents:
        assert "Traceback" not in cluster.logs(name, chart.agents)


def containers(chart: Chart) -> dict[str, tuple[str, int]]:
    """Container and number of restarts of each agent's pod."""
    return {
        pod["metadata"]["name"]: (one["containerID"], one["restartCount"])
        for pod in chart.cluster.pods(chart.agents)
        for one in pod["status"]["containerStatuses"]
    }


def ready(cluster: Cluster, namespace: str, name: str = "shop") -> bool:
    """Whether the operator has seen the latest edit, and agents measure by it."""
    found = conditions(cluster, namespace, name)
    wanted = ("Accepted", "ProbesReady", "Measuring", "Ready")
    return observed(cluster, namespace, name) and all(found.get(one, ("",))[0] == "True" for one in wanted)


def suspended(cluster: Cluster, namespace: str) -> bool:
    """Whether nothing is measured, as the latest edit asks."""
    found = conditions(cluster, namespace)
    return observed(cluster, namespace) and found["Measuring"][:2] == ("False", "Suspended")


def observed(cluster: Cluster, namespace: str, name: str = "shop") -> bool:
    probe = cluster.get("latencyprobe", name, namespace) or {"metadata": {}}
    generation = probe.get("status", {}).get("observedGeneration")
    return generation is not None and generation == probe["metadata"]["generation"]


def events(cluster: Cluster, namespace: str, objective: str) -> int:
    """RPCs that the report counts for an objective; 0 while it has none."""
    return int(results(cluster, namespace).get(objective, {}).get("events", 0))
