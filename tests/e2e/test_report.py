"""The namespace's SLO report: exact counts of a clean run, and the stage that burned the budget of a slow one."""

import json
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, linked
from tests.e2e.bench.workload import PORT, Workload
from tests.e2e.probes import latency_probe, latencyprobe, pairs, results

pytestmark = pytest.mark.e2e

RPCS, SLOW, CLEAN = 2000, 200, 500
STATES = {"fast": (RPCS + SLOW, "Violated"), "fast-for-callers": (RPCS + SLOW, "Violated"), "clean": (CLEAN, "Met")}
LIMITS = {"threshold": "25ms", "goal": "99"}
PROBE = latency_probe(
    targets=[
        # no pause of a machine that is held up is one of the application
        {"name": name, "podSelector": {"matchLabels": {"app": name}}, "ports": [PORT], "pause": "1m"}
        for name in ("server", "clean")
    ],
    objectives=[
        {"name": "fast", "target": "server", **LIMITS},
        {"name": "fast-for-callers", "target": "server", "perspective": "Client", **LIMITS},
        {"name": "clean", "target": "clean", "threshold": "10s", "goal": "99"},
    ],
)


def test_report_counts_every_rpc_and_names_the_stage_of_the_slow_ones(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    namespace = workload.namespace
    for name, node in (("server", "n2"), ("clean", "n2"), ("caller", "n1")):
        workload.serve(name, node)
    cluster.apply(PROBE, namespace)
    wait_for(lambda: status(cluster, namespace, "nodes") == "2/2", "agents measure on both nodes")

    workload.call_from("caller", RPCS, "--rate", "200", "--threads", "4")
    evenly = ("--rate", "100", "--threads", "1", "--size", "200", "--one-piece")
    workload.call_from("caller", CLEAN, *evenly, server="clean")
    workload.delay(40)
    workload.call_from("caller", SLOW, "--threads", "8")

    # Every RPC is one linked pair, and one event on each side.
    wait_for(lambda: len(pairs(jaeger, namespace)) >= RPCS + SLOW, f"{RPCS + SLOW} linked pairs in Jaeger")
    assert len({server.span_id for _, server in pairs(jaeger, namespace)}) == RPCS + SLOW
    # The objective that the sleep broke is violated, the other one is met, and the stage is named. Counts that an agent
    # posts late make their minute whole with the next evaluation.
    told = wait_for(lambda: complete(cluster, namespace), f"a report of all events: {STATES}")
    assert told["fast"]["bad"] >= SLOW
    assert [told[name]["badByStage"][0]["stage"] for name in ("fast", "fast-for-callers")] == [
        "process",
        "server_process",
    ]
    slowest = linked([jaeger.trace(told["fast"]["slowest"][0]["traceId"])])
    assert max(server.duration_us for _, server in slowest) >= 40_000
    wait_for(lambda: status(cluster, namespace, "slo") == "Violated", "the LatencyProbe shows its worst state")

    # Who suffers, of the last full minutes: its one caller.
    wait_for(lambda: worst_peer(cluster, namespace) == f"{namespace}/caller", "the caller is the worst peer")

    # The same report through the user's own kubectl.
    printed = latencyprobe("report", "-n", namespace, "-o", "json", "--fail-on", "violated")
    assert printed.returncode == 1
    assert {one["objective"]: one["state"] for one in json.loads(printed.stdout)["results"]} == {
        name: told[name]["state"] for name in told
    }
    assert "process" in latencyprobe("report", "-n", namespace).stdout


def status(cluster: Cluster, namespace: str, field: str) -> object:
    return (cluster.get("latencyprobe", "shop", namespace) or {}).get("status", {}).get(field)


def worst_peer(cluster: Cluster, namespace: str) -> object:
    """The server's objective's worst peer of the last full minutes, once it is known."""
    peers = results(cluster, namespace)["fast"].get("now", {}).get("peers", [{}])
    return peers[0].get("peer")


def complete(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """The results by objective, once they have all events and are judged by them."""
    found = results(cluster, namespace)
    return found if {name: (one["events"], one["state"]) for name, one in found.items()} == STATES else {}
