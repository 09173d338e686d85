"""From `kubectl apply` to one linked trace per RPC in Jaeger: a client on one node, servers on the other."""

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from latencyprobe.stages import CLIENT, SERVER, names
from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span
from tests.e2e.bench.workload import PORT, Workload
from tests.e2e.probes import is_true, latency_probe, nothing_measured, pairs

pytestmark = pytest.mark.e2e


class Shop(NamedTuple):
    """A namespace with a server on n2 behind a ClusterIP and a client on n1 that calls it all the time."""

    workload: Workload
    client: Span
    server: Span


@pytest.fixture(scope="module")
def shop(chart: Chart, cluster: Cluster, jaeger: Jaeger) -> Iterator[Shop]:
    chart.install()
    with cluster.namespace(f"shop-{os.urandom(2).hex()}") as namespace:
        workload = Workload(cluster, namespace)
        workload.serve(node="n2")
        workload.load(node="n1")
        wait_for(lambda: nothing_measured(chart), "no agent runs")
        cluster.apply(latency_probe(), namespace)
        applied = time.monotonic()
        found = wait_for(lambda: pairs(jaeger, namespace), "the first linked trace is in Jaeger")
        print(f"kubectl apply to the first linked trace: {time.monotonic() - applied:.1f} s")
        yield Shop(workload, *found[0])


@pytest.mark.parametrize(("app", "node", "peer"), [("client", "n1", "server"), ("server", "n2", "client")])
def test_span_tells_who_it_was_and_whom_it_talked_to(
    shop: Shop, cluster: Cluster, app: str, node: str, peer: str
) -> None:
    span: Span = getattr(shop, app)
    namespace = shop.workload.namespace
    (pod,) = cluster.pods(namespace, f"app={app}")

    told = {
        "service": span.service,
        "pod": span.resource["k8s.pod.name"],
        "uid": span.resource["k8s.pod.uid"],
        "namespace": span.resource["k8s.namespace.name"],
        "node": span.resource["k8s.node.name"],
        "container": span.resource["k8s.container.name"],
        "container id": span.resource["container.id"],
        "peer": span.tags["service.peer.name"],
        "peer's namespace": span.tags["service.peer.namespace"],
    }

    assert told == {
        "service": app,
        "pod": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "namespace": namespace,
        "node": node,
        "container": "truth",
        "container id": pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://"),
        "peer": peer,
        "peer's namespace": namespace,
    }


def test_client_knows_the_service_it_dialled_and_the_server_its_caller(shop: Shop, cluster: Cluster) -> None:
    (caller,) = cluster.pods(shop.workload.namespace, "app=client")
    (callee,) = cluster.pods(shop.workload.namespace, "app=server")

    assert shop.client.tags["network.peer.address"] == cluster.service_ip("server", shop.workload.namespace)
    assert shop.client.tags["server.port"] == PORT
    assert shop.server.tags["server.address"] == callee["status"]["podIP"]
    assert shop.server.tags["client.address"] == caller["status"]["podIP"]


def test_server_span_is_the_child_of_the_client_span(shop: Shop) -> None:
    assert (shop.client.trace_id, shop.client.span_id) == (shop.server.trace_id, shop.server.parent_id)
    assert shop.client.parent_id is None
    assert shop.server.tags["latencyprobe.stage.process"] * 1e6 <= shop.client.duration_us


@pytest.mark.parametrize(
    ("side", "stages"),
    [
        ("client", {*names(CLIENT)}),
        ("server", {*names(SERVER)}),
    ],
)
def test_stages_sum_to_the_duration(shop: Shop, side: str, stages: set[str]) -> None:
    span: Span = getattr(shop, side)
    prefix = "latencyprobe.stage."
    told = {key.removeprefix(prefix): value for key, value in span.tags.items() if key.startswith(prefix)}
    if "latencyprobe.joined" in span.tags:  # a slow one also has the pair's stages beside its own
        told = {stage: value for stage, value in told.items() if stage in stages}

    assert told.keys() == stages
    assert sum(told.values()) * 1e6 == pytest.approx(span.duration_us, abs=2)  # Jaeger keeps whole µs


def test_jaeger_draws_the_edge_from_client_to_server(shop: Shop, jaeger: Jaeger) -> None:
    assert ("client", "server") in jaeger.dependencies(end_ms=int(time.time() * 1000) + 1000)


def test_status_says_that_it_measures(shop: Shop, cluster: Cluster) -> None:
    for condition in ("Accepted", "ProbesReady", "Measuring", "Ready"):
        wait_for(lambda c=condition: is_true(cluster, shop.workload.namespace, c), f"condition {condition}")

    status = (cluster.get("latencyprobe", "shop", shop.workload.namespace) or {})["status"]
    assert status["nodes"] == "2/2"
    assert [(one["name"], one["pods"]) for one in status["targets"]] == [("rpc", 1)]
