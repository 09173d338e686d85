"""Pods come and go in waves, two tenants use the same addresses in turn: nobody is ever taken for somebody else."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span
from tests.e2e.bench.workload import Workload
from tests.e2e.kernel import numbers_held
from tests.e2e.probes import is_true, latency_probe

pytestmark = pytest.mark.e2e

WAVES = int(os.environ.get("WAVES", "5"))  # 12 pods each; 17 are 204
UNKNOWN = 0.001  # of all spans, at most
NOBODY = "server whose peer is nobody"
LATE_S = 3.0  # a span waits 4 s for its peer's name, which nobody has before the API server
TENANTS = ("red", "blue")


@pytest.fixture
def tenants(cluster: Cluster) -> Iterator[dict[str, Workload]]:
    """A namespace each, with servers and clients that bear its colour, on both nodes."""
    names = {colour: f"{colour}-{os.urandom(2).hex()}" for colour in TENANTS}
    with cluster.namespace(names["red"]), cluster.namespace(names["blue"]):
        yield {colour: Workload(cluster, name) for colour, name in names.items()}


def test_nobody_is_taken_for_somebody_else_while_pods_come_and_go(
    release: Chart, cluster: Cluster, jaeger: Jaeger, tenants: dict[str, Workload]
) -> None:
    for colour, workload in tenants.items():
        for node in ("n1", "n2"):
            workload.serve(name=f"{colour}-server-{node}", node=node)
            workload.load(name=f"{colour}-client-{node}", server=f"{colour}-server-{node}", node=other(node), rate=20)
        workload.load(name=f"{colour}-client", server=f"{colour}-server-n1", node=None, rate=20)
        workload.serve(name=f"{colour}-server", node=None)
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": servers(colour)}]}
        target = {"name": "rpc", "podSelector": selector, "ports": [9000]}
        cluster.apply(latency_probe(targets=[target]), workload.namespace)
    for workload in tenants.values():
        wait_for(lambda w=workload: is_true(cluster, w.namespace, "Measuring"), "it is measured")
    wait_for(lambda: explained(release), "evidence is attached on both nodes")
    before = held(release)
    namespaces = [workload.namespace for workload in tenants.values()]
    pods: set[str] = set()
    addresses: Counter[str] = Counter()
    late_s: dict[str, float] = {}
    for _ in range(WAVES):
        for workload in tenants.values():
            for pod in cluster.pods(workload.namespace):
                pods.add(pod["metadata"]["uid"])
                addresses[pod["status"].get("podIP", "")] += 1
            cluster.kubectl("delete", "pods", "-n", workload.namespace, "--all", "--wait=false")
        wait_for(lambda: there(cluster, namespaces, 12, late_s), "all pods are there again")

    wrong: list[str] = []
    seen: Counter[str] = Counter()
    untold = 0
    for colour, workload in tenants.items():
        for service in (*servers(colour), *clients(colour)):
            for trace in jaeger.traces(service, {"k8s.namespace.name": workload.namespace}, limit=20_000):
                for span in (one for one in trace if one.kind != "internal"):  # a stage says nothing of ends
                    said = judged(span, {c: w.namespace for c, w in tenants.items()})
                    if said == NOBODY and late_s.get(span.tags.get("client.address", ""), 0) > LATE_S:
                        said = "called before the API server had its client's address"
                        untold += 1
                    seen[said] += 1
                    if said == "wrong":
                        wrong.append(f"{span.service} {span.kind} {dict(span.tags)} {dict(span.resource)}")
    again = sum(n > 1 for n in addresses.values())
    print(f"{len(pods)} pods, {again} addresses used again, spans: {dict(seen)}")
    assert not wrong, wrong[:3]
    assert seen["right"] > 100 * WAVES
    assert seen.total() - seen["right"] - untold <= UNKNOWN * seen.total()
    # a node that had no target for a moment has let its evidence go, and loads it again
    wait_for(lambda: held(release) == before, "what agents hold in the kernel is as much as before the first wave")


def judged(span: Span, namespaces: dict[str, str]) -> str:
    """Whether a span says of both ends what can be true: those of one colour talk among themselves."""
    colour = span.service.partition("-")[0]
    own, peer = span.resource.get("k8s.namespace.name"), span.tags.get("service.peer.name")
    if span.service.startswith("unknown_service"):
        return "unknown"
    role = "client" if span.kind == "client" else "server"
    whom = "server" if role == "client" else "client"
    right = (
        own == namespaces.get(colour)
        and span.service.startswith(f"{colour}-{role}")
        and str(span.resource.get("k8s.pod.name", "")).startswith(span.service)
        and (peer is None or str(peer).startswith(f"{colour}-{whom}"))
        and span.tags.get("service.peer.namespace", own) == own
    )
    if not right:
        return "wrong"
    if peer is None:
        return f"{role} whose peer is {'not yet known' if span.tags.get('latencyprobe.peer.unresolved') else 'nobody'}"
    return "right"


def other(node: str) -> str:
    return {"n1": "n2", "n2": "n1"}[node]


def servers(colour: str) -> list[str]:
    return [f"{colour}-server{where}" for where in ("", "-n1", "-n2")]


def clients(colour: str) -> list[str]:
    return [f"{colour}-client{where}" for where in ("", "-n1", "-n2")]


def there(cluster: Cluster, namespaces: list[str], count: int, late_s: dict[str, float]) -> bool:
    """Whether so many pods are ready and none is about to end. `late_s`: how late after its start each was first seen
    to have its address."""
    pods = [pod for namespace in namespaces for pod in cluster.pods(namespace)]
    fresh = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    states = [one["ready"] for pod in fresh for one in pod["status"].get("containerStatuses", ())]
    for pod in fresh:
        for one in pod["status"].get("containerStatuses", ()):
            if (address := pod["status"].get("podIP")) and (running := one["state"].get("running")):
                started_s = datetime.fromisoformat(running["startedAt"]).timestamp()
                late_s.setdefault(address, time.time() - started_s)
    return len(states) == count and all(states)


def explained(chart: Chart) -> bool:
    """Whether each agent has said that it has the signals that targets ask for by default."""
    agents = chart.cluster.pods(chart.agents)
    logs = [chart.cluster.logs(pod["metadata"]["name"], chart.agents) for pod in agents]
    return len(agents) == len(chart.cluster.nodes) and all(
        f"{signal}: attached" in log for signal in ("retransmits", "handshakes") for log in logs
    )


def held(chart: Chart) -> dict[str, dict[str, int]]:
    """How many objects of each kind the agent of each node holds in the kernel."""
    return {pod["spec"]["nodeName"]: numbers_held(pod) for pod in chart.cluster.pods(chart.agents)}
