"""Remote join between two nodes: of slow RPCs the caller's side knows the network and the server's stages."""

import time
from typing import Any

import pytest

from latencyprobe import stages
from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span, Trace, stages_us
from tests.e2e.bench.workload import Workload
from tests.e2e.probes import is_true, latency_probe, pairs, results

pytestmark = pytest.mark.e2e

BAD = 400
PER_S = 20
NAMED = 0.5  # an agent or the operator that is held up for the 4 s of a question answers none of them
STAGES = stages.names(stages.PAIR)
OBJECTIVE = {
    "name": "fast",
    "target": "rpc",
    "threshold": "25ms",
    "goal": "99",
    "minEvents": 20,
    "perspective": "Client",
}


def test_callers_report_names_the_stage_of_slow_rpcs_between_two_nodes(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload
) -> None:
    namespace = workload.namespace
    workload.serve(node="n2")
    workload.serve("caller", "n1")
    spans = {"ratio": "0", "maxPerSecond": 1000}
    cluster.apply(latency_probe(objectives=[OBJECTIVE], spans=spans), namespace)
    wait_for(lambda: is_true(cluster, namespace, "ProbesReady"), "agents are ready")
    workload.delay(40)
    workload.call_from("caller", BAD, "--rate", str(PER_S), "--threads", "8", "--max-size", "8192")

    def named() -> dict[str, Any]:
        result = results(cluster, namespace).get("fast", {})
        known = sum(one["events"] for one in result.get("badByStage", []) if one["stage"] in STAGES)
        return result if result.get("bad") == BAD and known >= NAMED * BAD else {}

    result = wait_for(named, f"{NAMED:.0%} of {BAD} slow RPCs have a stage of both halves")
    print(f"bad by stage: {result['badByStage']}")
    assert result["badByStage"][0]["stage"] == "server_process"

    both = wait_for(
        lambda: found if len(found := pairs(jaeger, namespace)) >= NAMED * BAD else [], "linked pairs in Jaeger"
    )
    joined = [(client, server) for client, server in both if client.tags.get("latencyprobe.joined") == "remote"]
    print(f"{len(joined)} of {len(both)} linked pairs are joined remotely")
    assert len(joined) >= NAMED * len(both)
    for client, server in joined:
        told = {stage: client.tags[f"latencyprobe.stage.{stage}"] for stage in STAGES}
        assert sum(told.values()) * 1e6 == pytest.approx(client.duration_us, abs=2)
        assert told["server_process"] == pytest.approx(server.tags["latencyprobe.stage.process"], abs=1e-6)
        assert client.tags["service.peer.name"] == server.service == "server"
    for client, server in joined[:20]:
        trace = jaeger.trace(client.trace_id)
        assert {one.service for one in trace} == {client.service, server.service}
        assert_drawn(trace, server, {*stages.names(stages.SERVER)}, 0.0)
        but_wait = {*stages.names(stages.CLIENT)} - {"wait"}  # in its place stands the server's span
        assert_drawn(trace, client, but_wait, client.tags["latencyprobe.stage.wait"])
    assert (client.service, "server") in jaeger.dependencies(end_ms=int(time.time() * 1000) + 1000)


def assert_drawn(trace: Trace, half: Span, expected: set[str], left_out_s: float) -> None:
    """The stages of a slow half are child spans, which with what is left out sum to its duration."""
    told = stages_us(trace, half)
    assert told.keys() <= expected, "of those that took any time"
    rounding_us = 1 + len(told)  # Jaeger keeps whole µs of each
    assert sum(told.values()) + left_out_s * 1e6 == pytest.approx(half.duration_us, abs=rounding_us)
    assert not [one for one in half.events if str(one["event"]).startswith("latencyprobe.stage.")]
