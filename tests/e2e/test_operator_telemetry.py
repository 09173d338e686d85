"""The operator's own traces, as Jaeger has them."""

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Trace
from tests.e2e.bench.workload import Workload
from tests.e2e.probes import is_true, latency_probe

pytestmark = pytest.mark.e2e


def test_an_edit_is_one_trace_from_the_watch_event_to_the_agents_of_both_nodes(
    chart: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    no_metrics = {"name": "OTEL_METRICS_EXPORTER", "value": "none"}  # Jaeger takes traces alone
    chart.install({"otlp": {"operator": True}, "operator": {"extraEnv": [no_metrics]}})
    workload.serve(node="n2")
    workload.load(node="n1")
    cluster.apply(latency_probe(), workload.namespace)
    wait_for(lambda: is_true(cluster, workload.namespace, "Ready"), "it is measured on both nodes")
    cluster.apply(latency_probe(spans={"maxPerSecond": 7}), workload.namespace)

    delivered = wait_for(lambda: changes(jaeger, workload.namespace), "a change that agents of both nodes follow")
    root = next(span for span in delivered if span.name == "plan change")
    assert root.resource["service.version"]
    assert root.tags["latencyprobe.nodes"] == 2
    assert {span.parent_id for span in delivered if span is not root} == {root.span_id}
    assert {"plan change", "plan", "deliver"} == {span.name for span in delivered}


def changes(jaeger: Jaeger, namespace: str) -> Trace | None:
    """A change of this namespace that both nodes follow."""
    for trace in jaeger.traces("latencyprobe-operator"):
        nodes = {span.tags.get("k8s.node.name") for span in trace if span.name == "deliver"}
        if len(nodes) == 2 and any(namespace in str(span.tags.get("latencyprobe.namespaces")) for span in trace):
            return trace
    return None
