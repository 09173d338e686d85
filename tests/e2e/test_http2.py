"""gRPC between two nodes: many calls share a connection, and each is measured, linked and judged; HTTP/1.1 beside."""

import json
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger
from tests.e2e.bench.workload import deployment, pod
from tests.e2e.probes import conditions, is_true, latency_probe, pairs, results

pytestmark = pytest.mark.e2e

PORT = 9100
THRESHOLD_MS = 100
SPREAD, SPREAD_SLOW = 2040, 40  # to both servers by turns, 50 at a time on each connection; each 51st: slow at both
SERVICE, SERVICE_SLOW = 1000, 20  # to one of them
HTTP1 = 300
WATCHES, FIRST_ANSWER_S = 5, 0.15
PERSPECTIVES = ("Server", "Client")


def program(node: str, labels: dict[str, str], *words: str) -> dict[str, Any]:
    template = pod([], node, labels, command=["/bin/calls", *words])
    container = template["spec"]["containers"][0]
    del container["args"]
    if words[0].startswith("serve"):
        container["readinessProbe"] = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
    return template


def service(name: str, kind: str, **spec: Any) -> dict[str, Any]:
    of = {"selector": {"kind": kind}, "ports": [{"name": "rpc", "port": PORT}]} | spec
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": of}


def probe(namespace_pods: dict[str, str]) -> dict[str, Any]:
    target = {"name": "rpc", "podSelector": {"matchLabels": namespace_pods}, "ports": [PORT], "protocol": "HTTP2"}
    objectives = [
        {
            "name": perspective.lower(),
            "target": "rpc",
            "perspective": perspective,
            "threshold": f"{THRESHOLD_MS}ms",
            "goal": "90",
        }
        for perspective in PERSPECTIVES
    ]
    return latency_probe(targets=[target], objectives=objectives, spans={"ratio": "0", "maxPerSecond": 1000})


def test_each_call_of_grpc_is_linked_and_judged_though_fifty_share_a_connection(
    release: Chart, cluster: Cluster, jaeger: Jaeger, namespace: str
) -> None:
    """Behind a headless Service with balancing by the client, and behind a ClusterIP."""
    rpc = {"tier": "rpc"}
    cluster.apply(
        [
            service("spread", "grpc", clusterIP="None"),
            service("one", "grpc"),
            service("old", "http1"),
            deployment("server", program("n2", rpc | {"kind": "grpc"}, "serve", str(PORT)), 2),
            deployment("old", program("n2", rpc | {"kind": "http1"}, "serve-http1", str(PORT))),
            deployment("caller", pod(["serve", "--address", "0.0.0.0:9000", "--control", "0.0.0.0:9001"], "n1", {})),
        ],
        namespace,
    )
    for name in ("server", "old", "caller"):
        cluster.wait_for_rollout(f"deployment/{name}", namespace)
    cluster.apply(probe(rpc), namespace)
    wait_for(lambda: is_true(cluster, namespace, "ProbesReady"), "agents are ready")

    def said(*words: object) -> str:
        return cluster.exec("deployment/caller", *map(str, words), namespace=namespace)

    def ask(*words: object) -> list[float]:
        took_ms: list[float] = json.loads(said("calls", *words))
        return took_ms

    spread = f"spread.{namespace}.svc.cluster.local"
    addresses = [one["status"]["podIP"] for one in cluster.pods(namespace, "kind=grpc")]

    def resolved() -> bool:
        known = said("sh", "-c", f"nslookup -type=a {spread} || true")
        return all(f"Address: {address}\n" in known for address in addresses)

    wait_for(resolved, "the name of both servers leads to both")
    took_ms = ask("ask", f"dns:///{spread}:{PORT}", SPREAD, 100, SPREAD_SLOW)
    took_ms += ask("ask", f"one:{PORT}", SERVICE, 50, SERVICE_SLOW)
    took_ms += ask("ask-http1", f"http://old:{PORT}/", HTTP1)
    watched_ms = ask("watch", f"one:{PORT}", WATCHES)
    slow, seen_slow = SPREAD_SLOW + SERVICE_SLOW, sum(one > THRESHOLD_MS for one in took_ms)

    def judged() -> dict[str, Any]:
        found = results(cluster, namespace)
        return found if all(one.get("events", 0) >= len(took_ms) for one in found.values()) and len(found) == 2 else {}

    told = wait_for(judged, "a report of all calls")
    for name, one in told.items():
        print(f"{name}: {one['events']} events, {one['bad']} bad ({slow} slow, {seen_slow} seen), {one['badByStage']}")
    for one in told.values():
        assert one["events"] == len(took_ms)
        assert one["bad"] >= slow
        left_out = {one["reason"] for one in one["coverage"].get("exclusions", [])}
        assert left_out <= {"setup", "streaming"}, "the servers' SETTINGS, and watches"
    assert told["client"]["bad"] <= seen_slow, "a server's send call may return after its client has had the answer"
    assert told["server"]["badByStage"][0]["stage"] == "process"
    assert told["client"]["badByStage"][0]["stage"] == "server_process"

    def linked_pairs() -> list[tuple[Any, Any]]:
        found = pairs(jaeger, namespace)
        watched = sum(client.tags["latencyprobe.class"] == "streaming" for client, _ in found)
        return found if len(found) >= slow + WATCHES and watched >= WATCHES else []

    both = wait_for(linked_pairs, "linked pairs")
    watches = [pair for pair in both if pair[0].tags["latencyprobe.class"] == "streaming"]
    linked = [pair for pair in both if pair not in watches]
    assert len(watches) == WATCHES
    for client, server in watches:
        assert server.tags["latencyprobe.class"] == "streaming"
        first_s = [span.tags["latencyprobe.http2.first_answer"] for span in (client, server)]
        assert max(watched_ms) / 1000 >= first_s[0] >= first_s[1] >= FIRST_ANSWER_S
        assert {span.tags["latencyprobe.sampled.reason"] for span in (client, server)} == {"slow"}
    assert {(client.tags["latencyprobe.class"], client.tags["network.protocol.version"]) for client, _ in linked} == {
        ("unary", "2")
    }
    for client, server in linked:
        assert client.tags["latencyprobe.http2.stream.id"] == server.tags["latencyprobe.http2.stream.id"]
    # others that this machine held up may be slow for other reasons
    assert sum(server.tags["latencyprobe.stage.process"] * 1000 > THRESHOLD_MS for _, server in linked) >= slow
    assert {server.resource["k8s.pod.name"] for _, server in linked} == {
        one["metadata"]["name"] for one in cluster.pods(namespace, "kind=grpc")
    }
    told_of = conditions(cluster, namespace)["ProtocolMismatch"][2]
    print(told_of)
    assert " % of the calls of target rpc came on connections that are no HTTP/2 in clear text" in told_of
