"""What is dropped between two nodes shows on the spans of the RPCs that lost it, and in the report."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span
from tests.e2e.bench.workload import PORT, Workload
from tests.e2e.probes import is_true, latency_probe, pairs, results

pytestmark = pytest.mark.e2e

RPCS, EVERY = 1000, 40
OBJECTIVE = {"name": "fast", "target": "rpc", "threshold": "100ms", "goal": "99", "minEvents": 20}
FOR_CALLERS = {**OBJECTIVE, "name": "fast-for-callers", "perspective": "Client"}
SLOW_US = 150_000
CALL = ("--threads", "8", "--size", "400", "--one-piece")


@pytest.fixture
def lossy_server(cluster: Cluster, workload: Workload) -> Iterator[None]:
    """A server on n2, every 40th of whose answers is dropped where it leaves the node."""
    workload.serve(node="n2")
    (pod,) = cluster.pods(workload.namespace, "app=server")
    answers = f"ip saddr {pod['status']['podIP']} tcp sport {PORT} meta length > 200"
    cluster.in_node("n2", "nft", "add table ip loss")
    cluster.in_node("n2", "nft", "add chain ip loss forward { type filter hook forward priority -10 ; }")
    every = f"numgen inc mod {EVERY} == {EVERY - 1}"
    cluster.in_node("n2", "nft", f"add rule ip loss forward {answers} {every} counter drop")
    yield
    cluster.in_node("n2", "nft", "delete table ip loss")


def test_rpcs_whose_answers_were_lost_say_so_on_their_spans_and_in_the_report(
    release: Chart, cluster: Cluster, jaeger: Jaeger, workload: Workload, lossy_server: None
) -> None:
    namespace = workload.namespace
    workload.serve("caller", "n1")
    probe = latency_probe(objectives=[OBJECTIVE, FOR_CALLERS])
    probe["spec"]["targets"][0]["pause"] = "2s"  # a lost last segment may take longer than the default (limits.md)
    cluster.apply(probe, namespace)
    wait_for(lambda: is_true(cluster, namespace, "ProbesReady"), "agents are ready, their evidence attached")

    workload.call_from("caller", RPCS, *CALL)

    both = wait_for(
        lambda: found if len(found := pairs(jaeger, namespace)) >= RPCS else [], f"{RPCS} linked pairs in Jaeger"
    )
    hit = {server.trace_id: (client, server) for client, server in both if resent(server)}
    slow = {trace for trace, (client, _) in hit.items() if client.duration_us >= SLOW_US}
    again = sum(one["latencyprobe.retransmit.segments"] for _, server in hit.values() for one in resent(server))
    print(f"{dropped(cluster)} answers dropped, {again} segments sent again in {len(hit)} RPCs, {len(slow)} slow ones")
    assert len(hit) >= RPCS // EVERY // 2
    # by the sockets' own count: a timer that lands upon the host's first process shows no record (kernel.md)
    counted = sum(server.tags.get("latencyprobe.tcp.retransmits", 0) for _, server in both)
    assert counted >= dropped(cluster) >= RPCS // EVERY
    assert counted >= again
    for client, server in hit.values():
        events = resent(server)
        assert {one["latencyprobe.reason"] for one in events} <= {"tlp", "rto", "fast", "rack_reo", "slow_start"}
        assert (
            sum(one["latencyprobe.retransmit.segments"] for one in events)
            == server.tags["latencyprobe.tcp.retransmits"]
        )
        # the answer was not there before it had been sent again
        assert max(one["latencyprobe.wait"] for one in events) * 1e6 <= client.duration_us
    opened = [server for _, server in both if any(one["event"] == "handshake" for one in server.events)]
    assert sorted(map(connection, opened)) == sorted({connection(server) for _, server in both})

    def told() -> dict[str, Any]:
        found = results(cluster, namespace)
        evidence = {
            name: signal
            for name, one in found.items()
            for signal in one.get("evidence", ())
            if signal["signal"] == "retransmits"
        }
        complete = found.get("fast", {}).get("events") == found.get("fast-for-callers", {}).get("events") == RPCS
        callers = evidence.get("fast-for-callers", {"bad": -1})
        return evidence if complete and callers["bad"] >= len(slow) else {}

    evidence = wait_for(told, "a report of all events, and for callers one that explains the slow ones")
    print(f"evidence in the report: {evidence}")
    assert evidence["fast"]["events"] == len(hit)
    for one in results(cluster, namespace)["fast-for-callers"]["slowest"]:
        if one["traceId"] in slow:
            assert "retransmits" in {hit["signal"] for hit in one.get("evidence", ())}, one


def dropped(cluster: Cluster) -> int:
    rule = cluster.in_node("n2", "nft", "list", "table", "ip", "loss")
    return int(re.search(r"packets (\d+)", rule)[1])  # type: ignore[index]


def connection(server: Span) -> tuple[str, int]:
    return server.tags["client.address"], server.tags["client.port"]


def resent(span: Span) -> list[dict[str, Any]]:
    return [event for event in span.events if event["event"] == "retransmit"]
