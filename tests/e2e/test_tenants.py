"""Ten namespaces whose workloads and LatencyProbes have the same names and selectors that overlap, under load on both
nodes: nothing that leaves operator or agents for one of them has a name or an address of another."""

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import HOST, Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span
from tests.e2e.bench.workload import CONTROL_PORT, PORT, deployment, pod
from tests.e2e.probes import is_true, latency_probe, results
from tests.support.otlp import OtlpSink, points

pytestmark = pytest.mark.e2e

TENANTS = 10
CANARY = re.compile(r"canary\d")
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
OBJECTIVE = {"name": "fast", "target": "rpc", "threshold": "25ms", "goal": "99", "minEvents": 1}
SELECTORS = ({}, {"matchLabels": {"app": "server"}}, {"matchExpressions": [{"key": "tier", "operator": "Exists"}]})


class Tenant:
    """A namespace that bears its canary, as do its pods' labels and attributes, and a Service of its own name."""

    def __init__(self, cluster: Cluster, number: int, namespace: str) -> None:
        self.namespace = namespace
        self.canary = f"canary{number}"
        self._cluster = cluster
        self._selector = SELECTORS[number % len(SELECTORS)]
        self._host_network = number == 0

    def apply(self) -> None:
        arguments = ["serve", "--address", f"0.0.0.0:{PORT}", "--control", f"0.0.0.0:{CONTROL_PORT}"]
        ports = [{"name": "rpc", "port": PORT}]
        spec = {"selector": {"app": "server"}, "ports": ports}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": self.canary}, "spec": spec}
        call = ["load", "--address", f"{self.canary}:{PORT}", "--rate", "10", "--threads", "1"]
        client = self._marked(pod(call, "n1", {"tier": "front"}))
        if self._host_network:
            client["spec"] |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        server = self._marked(pod(arguments, "n2", {"tier": "back"}))
        target = {"name": "rpc", "podSelector": self._selector, "ports": [PORT]}
        probe = latency_probe(targets=[target], objectives=[OBJECTIVE])
        everything = latency_probe("all", targets=[{"name": "rpc"}])
        workloads = [deployment("server", server), deployment("client", client)]
        self._cluster.apply([service, *workloads, probe, everything], self.namespace)

    def addresses(self) -> set[str]:
        """Those of its pods and its Service that are its own: a host-network pod has its node's."""
        pods = [one for one in self._cluster.pods(self.namespace) if not one["spec"].get("hostNetwork")]
        own = {one["status"].get("podIP", "") for one in pods} - {""}
        return own | {self._cluster.service_ip(self.canary, self.namespace)}

    def documents(self) -> list[dict[str, Any]]:
        """What its users see: LatencyProbes with their statuses, the report, events."""
        kinds = "latencyprobes.latencyprobe.dev,latencyreports.latencyprobe.dev,events"
        found: list[dict[str, Any]] = self._cluster.items(kinds, self.namespace)
        return found

    def _marked(self, template: dict[str, Any]) -> dict[str, Any]:
        template["metadata"]["labels"]["team"] = self.canary
        template["metadata"]["annotations"] = {"resource.opentelemetry.io/team": self.canary}
        return template


@pytest.fixture
def tenants(cluster: Cluster) -> Iterator[list[Tenant]]:
    mark = os.urandom(2).hex()
    with ExitStack() as stack:
        names = [stack.enter_context(cluster.namespace(f"canary{i}-{mark}")) for i in range(TENANTS)]
        yield [Tenant(cluster, number, name) for number, name in enumerate(names)]


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """Takes the agents' metrics, which Jaeger does not."""
    with OtlpSink(HOST) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_nothing_of_one_of_ten_namespaces_with_equal_names_is_told_to_another(
    chart: Chart, cluster: Cluster, jaeger: Jaeger, tenants: list[Tenant], sink: OtlpSink
) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{sink.url}/v1/metrics",
        "OTEL_METRIC_EXPORT_INTERVAL": "2000",
    }
    chart.install({"agent": {"extraEnv": [{"name": name, "value": value} for name, value in environment.items()]}})
    for tenant in tenants:
        tenant.apply()
    for tenant in tenants:
        for workload in ("server", "client"):
            cluster.wait_for_rollout(f"deployment/{workload}", tenant.namespace)
    for tenant in tenants:
        wait_for(lambda t=tenant: is_true(cluster, t.namespace, "Measuring"), f"{tenant.namespace} is measured")
        cluster.kubectl("label", "pods", "--all", "-n", tenant.namespace, "tier=other", "--overwrite")
    for tenant in tenants:
        wait_for(lambda t=tenant: counted(cluster, t), f"the report of {tenant.namespace}")

    addresses = {tenant.canary: tenant.addresses() for tenant in tenants}
    seen: Counter[str] = Counter()
    for tenant in tenants:
        foreign = {one for canary, some in addresses.items() if canary != tenant.canary for one in some}
        for document in tenant.documents():
            seen["documents"] += 1
            assert leaks(document, tenant.canary, foreign) == set(), document["metadata"]["name"]
        for span in spans(jaeger, tenant):
            seen["spans"] += 1
            said = {"tags": dict(span.tags), "resource": dict(span.resource), "events": [*map(dict, span.events)]}
            assert leaks(said, tenant.canary, foreign) == set(), span
        seen[f"{tenant.canary} has spans"] = bool(spans(jaeger, tenant))
    for series in points(sink.bodies("metrics")):
        marks = set(CANARY.findall(json.dumps([series.resource, series.labels])))
        seen["metrics"] += bool(marks)
        assert len(marks) <= 1, series
    print(dict(seen))
    assert all(seen[f"{tenant.canary} has spans"] for tenant in tenants)
    assert seen["metrics"] > 10 * TENANTS


def counted(cluster: Cluster, tenant: Tenant) -> bool:
    return int(results(cluster, tenant.namespace).get("fast", {}).get("events", 0)) > 0


def spans(jaeger: Jaeger, tenant: Tenant) -> list[Span]:
    """The spans of the tenant's own pods, without those of others in the same traces."""
    own = {"k8s.namespace.name": tenant.namespace}
    traces = [trace for name in ("server", "client") for trace in jaeger.traces(name, own, limit=500)]
    return [one for trace in traces for one in trace if one.resource.get("k8s.namespace.name") == tenant.namespace]


def leaks(document: Any, canary: str, foreign: set[str]) -> set[str]:
    """Canaries and addresses of others in something that is told to one."""
    text = json.dumps(document, default=str)
    return (set(CANARY.findall(text)) - {canary}) | (set(ADDRESS.findall(text)) & foreign)
