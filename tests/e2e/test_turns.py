"""Real servers of one LatencyProbe: its objectives count what the clients' own logs count, and nothing else.

A Redis with a replica that follows it, a MariaDB with a pool of connections, a websocket service that also pushes.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.software import PORTS, Software
from tests.e2e.probes import is_true, latency_probe, results

pytestmark = pytest.mark.e2e

SLOW, SLOW_MS, THRESHOLD_MS = 8, 500, 250
PERSPECTIVES = ("Server", "Client")
PROBE = latency_probe(
    "software",
    targets=[
        {"name": app, "podSelector": {"matchLabels": {"app": app}}, "ports": [port]} for app, port in PORTS.items()
    ],
    objectives=[
        {
            "name": f"{app}-{perspective.lower()}",
            "target": app,
            "perspective": perspective,
            "threshold": f"{THRESHOLD_MS}ms",
            "goal": "90",
        }
        for app in PORTS
        for perspective in PERSPECTIVES
    ],
)
Json = dict[str, Any]


def test_objectives_of_real_servers_count_what_their_clients_count(
    release: Chart, cluster: Cluster, namespace: str
) -> None:
    """Both ends of each target: as many events as the clients' RPCs, as many bad ones as they saw slow, and each turn
    that was no RPC with its reason."""
    software = Software(cluster, namespace)
    software.start()
    cluster.apply(PROBE, namespace)
    wait_for(lambda: is_true(cluster, namespace, "Ready", "software"), "all is measured")

    with ThreadPoolExecutor(len(PORTS)) as clients:
        running = clients.map(lambda app: software.use(f"{app}_client", SLOW_MS, SLOW), PORTS)
        logs = dict(zip(PORTS, running, strict=True))
    try:
        told = wait_for(lambda: complete(cluster, namespace, logs), "a report of all RPCs")
    finally:
        show(logs, by_end(cluster, namespace))

    for (app, perspective), one in told.items():
        log = logs[app]
        assert (one["events"], log["failed"]) == (len(log["took_ms"]), 0), f"{app}, {perspective}"
        assert one["bad"] >= SLOW, f"{app}, {perspective}"
        if perspective == "Client":  # a server's send call may return after its client has had the answer
            assert one["bad"] <= sum(took_ms > THRESHOLD_MS for took_ms in log["took_ms"]), app
        assert one["coverage"]["lost"] == 0, f"{app}, {perspective}"
    for perspective in PERSPECTIVES:
        assert exclusions(told["redis", perspective]).keys() == {"peer"}

        counted, pool = exclusions(told["mariadb", perspective]), logs["mariadb"]
        assert pool["oneway"] <= counted.pop("oneway") <= pool["oneway_at_most"]
        assert counted == {"setup": 2 * pool["connections"], "teardown": pool["connections"]}

        # On the connection that is pushed to, what its client asks is none either, and may share a turn with news.
        counted, pushed = exclusions(told["websocket", perspective]), logs["websocket"]
        assert counted.keys() == {"push", "streaming"}
        assert pushed["news"] / 2 <= sum(counted.values()) <= pushed["news"] + 2 * pushed["among_pushes"]
    for app in PORTS:
        assert told[app, "Server"]["badByStage"][0]["stage"] == "process"


def by_end(cluster: Cluster, namespace: str) -> dict[tuple[str, str], Json]:
    """The report's results by target and perspective."""
    return {(one["target"], one["perspective"]): one for one in results(cluster, namespace).values()}


def complete(cluster: Cluster, namespace: str, logs: dict[str, Json]) -> dict[tuple[str, str], Json]:
    """The results, once both ends have all that the clients asked, and the goodbyes behind it."""
    told = by_end(cluster, namespace)
    asked = all(
        told.get((app, perspective), {}).get("events", 0) >= len(logs[app]["took_ms"])
        for app in PORTS
        for perspective in PERSPECTIVES
    )
    left = logs["mariadb"]["connections"]
    gone = all(exclusions(told.get(("mariadb", end), {})).get("teardown", 0) >= left for end in PERSPECTIVES)
    return told if asked and gone else {}


def exclusions(result: Json) -> dict[str, int]:
    """Turns that count as no RPC, by reason."""
    return {one["reason"]: one["turns"] for one in result.get("coverage", {}).get("exclusions", [])}


def show(logs: dict[str, Json], told: dict[tuple[str, str], Json]) -> None:
    """Print the clients' logs, the slowest of each alone, beside the report."""
    for app, log in logs.items():
        slowest = [round(took_ms) for took_ms in log["took_ms"][: SLOW + 2]]
        print(f"{app}: {log | {'took_ms': slowest}}, calls: {len(log['took_ms'])}")
        for perspective in PERSPECTIVES:
            one = told.get((app, perspective), {})
            print(f"  {perspective}: {one.get('events')}, bad {one.get('bad')}, {one.get('coverage')}")
