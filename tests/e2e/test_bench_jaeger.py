"""Jaeger as the bench runs it: spans that go in over OTLP/HTTP come out of its query API."""

import os
import time

import pytest
import requests

from tests.e2e.bench.cluster import PATIENCE_S, Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, linked

pytestmark = pytest.mark.e2e


def pair_of_spans(service: str, trace_id: str) -> dict[str, object]:
    """An OTLP/JSON request with a client span and the server span below it, of two services."""
    now_ns = time.time_ns()

    def resource(name: str, span: dict[str, object]) -> dict[str, object]:
        attributes = [{"key": "service.name", "value": {"stringValue": name}}]
        times = {"startTimeUnixNano": str(now_ns), "endTimeUnixNano": str(now_ns + 1000)}
        return {
            "resource": {"attributes": attributes},
            "scopeSpans": [{"spans": [{"traceId": trace_id, "name": "rpc", **times, **span}]}],
        }

    client, server = os.urandom(8).hex(), os.urandom(8).hex()
    return {
        "resourceSpans": [
            resource(f"{service}-client", {"spanId": client, "kind": 3}),
            resource(f"{service}-server", {"spanId": server, "kind": 2, "parentSpanId": client}),
        ]
    }


@pytest.fixture(params=["jaeger", "standalone_jaeger"])
def any_jaeger(request: pytest.FixtureRequest) -> Jaeger:
    jaeger: Jaeger = request.getfixturevalue(request.param)
    return jaeger


def test_a_linked_pair_sent_by_otlp_is_found_as_a_trace_and_as_a_dependency(any_jaeger: Jaeger) -> None:
    service, trace_id = f"bench-{os.urandom(4).hex()}", os.urandom(16).hex()

    sent = requests.post(f"{any_jaeger.otlp}/v1/traces", json=pair_of_spans(service, trace_id), timeout=60)
    sent.raise_for_status()
    traces = wait_for(lambda: any_jaeger.traces(f"{service}-server"), "the trace is found by its service")

    ((client, server),) = linked(traces)
    assert (f"{service}-client", f"{service}-server") == (client.service, server.service)
    assert {client, server} == set(any_jaeger.trace(trace_id))
    edge = (f"{service}-client", f"{service}-server")
    assert edge in any_jaeger.dependencies(end_ms=int(time.time() * 1000) + 1000)


def test_pods_reach_jaeger_at_the_address_that_this_machine_uses(
    cluster: Cluster, jaeger: Jaeger, namespace: str
) -> None:
    address = jaeger.query.removeprefix("http://").replace(":", " ")
    request = f"printf 'GET /api/services HTTP/1.0\\r\\n\\r\\n' | nc {address}"

    where, image = ("-n", namespace), ("--image=bench.local/workload:1", "--image-pull-policy=Never")
    cluster.kubectl("run", "asker", *where, *image, "--restart=Never", "--command", "--", "sh", "-c", request)
    succeeded = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", "pod/asker", *where, succeeded, f"--timeout={PATIENCE_S}s")
    answer = cluster.kubectl("logs", "asker", *where)  # to attach would miss what it wrote before

    assert "200 OK" in answer
