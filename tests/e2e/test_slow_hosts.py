"""Six servers that are slow for a reason of their host's, from `kubectl apply` to the cause on one screen each.

All are asked at a time and measured by one LatencyProbe; each test looks at one of them: at its spans in Jaeger, at its
objective in the LatencyReport, and at the lines that a person reads.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pytest

from latencyprobe.causes import told
from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.jaeger import Jaeger, Span, linked
from tests.e2e.bench.slow import PORT, Service, Shop, on_disk
from tests.e2e.bench.slow_disk import slow_disk
from tests.e2e.probes import is_true, latency_probe, latencyprobe, pairs, results

pytestmark = pytest.mark.e2e

IOPS = 20  # of the disk
INDEX, INDEX_MIB = "index", 120  # more than who looks up in it may have in memory
LOCKED_MS = 80
TIMES = {"orders": 20, "search": 25, "pricing": 15, "web": 60, "front": 15}
ASKED = {**TIMES, "cart": TIMES["front"], "stock": TIMES["front"]}  # front asks cart, cart asks stock
CLIENTS = {"web"}  # what its own kernel holds is no part of a server's half
CAUSES = {"orders": "fsync", "search": "page_fault", "pricing": "throttled", "stock": "futex"}
INDENT = 12  # of what the report says of an objective
NAGLE = "Nagle, until the client's ACK: set TCP_NODELAY or write once"
REPORT_S = 180  # the report is written once a minute
PROBE = latency_probe(
    targets=[
        {"name": name, "podSelector": {"matchLabels": {"app": name}}, "ports": [PORT], "pause": "1m"} for name in ASKED
    ],
    objectives=[
        {
            "name": name,
            "target": name,
            "threshold": "30ms",
            "goal": "90",
            "minEvents": 10,
            "perspective": "Client" if name in CLIENTS else "Server",
        }
        for name in ASKED
    ],
    evidence={"syscalls": {}, "offcpu": {}},
)
Json = dict[str, Any]


@dataclass(frozen=True)
class Slow:
    """What was told of the services of one namespace, by their names. `reported`: results of the LatencyReport."""

    jaeger: Jaeger
    namespace: str
    served: dict[str, list[Span]]
    reported: dict[str, Json]

    def longest(self, service: str, part: str) -> Span:
        """The SERVER span with most of that part of `process`."""
        return max(self.served[service], key=lambda span: span.tags.get(f"latencyprobe.process.{part}", 0))

    def screen(self, service: str) -> str:
        """What the command line says of a service, which is printed; for asserting, without its line breaks."""
        slow = latencyprobe("slow", "-n", self.namespace, "--target", service).stdout
        lines = latencyprobe("report", "-n", self.namespace).stdout.splitlines()
        begin = next(i for i, line in enumerate(lines) if line[INDENT:].startswith(f"shop/{service} "))
        objective = [lines[begin], *takewhile(lambda line: line.startswith(" " * INDENT), lines[begin + 1 :])]
        print("\n".join((f"$ latencyprobe report -n {self.namespace}", *objective)))
        print(f"$ latencyprobe slow -n {self.namespace} --target {service}\n{slow}")
        return " ".join(" ".join((*objective, slow)).split())


@pytest.fixture(scope="module")
def slow(chart: Chart, cluster: Cluster, jaeger: Jaeger) -> Iterator[Slow]:
    """All services, asked and measured."""
    chart.install({"agent": {"kernelNames": True}})
    with (
        cluster.namespace(f"slow-{os.urandom(2).hex()}") as namespace,
        slow_disk(cluster, "n2", INDEX, INDEX_MIB) as disk,
    ):
        shop = Shop(cluster, namespace)
        shop.open(
            Service("orders", "n2", ("disk", on_disk("log")), disk=disk.folder),
            Service("search", "n2", ("pages", on_disk(INDEX)), {"memory": "48Mi"}, disk=disk.folder),
            Service("pricing", "n2", ("compute", "20"), {"cpu": "50m"}),
            Service("web", "n2", ("two_writes",)),
            Service("front", "n2", ("ask", f"cart:{PORT}")),
            Service("cart", "n1", ("ask", f"stock:{PORT}")),
            Service("stock", "n2", ("lock", str(LOCKED_MS))),
            callers_node="n1",
        )
        for name in ("orders", "search"):
            (pod,) = cluster.pods(namespace, f"app={name}")
            disk.throttle(pod, IOPS)
        cluster.apply(PROBE, namespace)
        wait_for(lambda: is_true(cluster, namespace, "Ready"), 60, "all is measured")

        shop.ask(TIMES)

        served = wait_for(lambda: all_served(jaeger, namespace), 60, f"SERVER spans of all RPCs: {ASKED}")
        reported = wait_for(lambda: all_reported(cluster, namespace), REPORT_S, "a report that explains all RPCs")
        yield Slow(jaeger, namespace, served, reported)


def all_served(jaeger: Jaeger, namespace: str) -> dict[str, list[Span]]:
    """The SERVER spans of each service, once there is one of each RPC."""
    found = {
        name: [
            span
            for trace in jaeger.traces(name, {"k8s.namespace.name": namespace})
            for span in trace
            if (span.service, span.kind) == (name, "server")
        ]
        for name in ASKED
    }
    return found if {name: len(spans) for name, spans in found.items()} == ASKED else {}


def all_reported(cluster: Cluster, namespace: str) -> dict[str, Json]:
    """The results by objective, once they have all events and what explains them."""
    found = results(cluster, namespace)
    counted = {name: one["events"] for name, one in found.items()} == ASKED
    accounts = all(share(found[name], "unknown") < 50 for name in CAUSES if counted)
    others = counted and found["front"].get("waitedFor") and found["web"].get("evidence")
    return found if counted and accounts and others else {}


def share(result: Json, cause: str) -> float:
    """Of `process`, in percent; all of it is unknown as long as nothing is told."""
    causes = {one["cause"]: float(one["share"]) for one in result.get("causes", [{"cause": "unknown", "share": "100"}])}
    return causes.get(cause, 0.0)


def waits(span: Span) -> list[Json]:
    """Its single long waits, longest first."""
    found = [dict(event) for event in span.events if event["event"] == "wait"]
    return sorted(found, key=lambda event: -event["latencyprobe.wait"])


def show(span: Span) -> None:
    """Print what a span says of where the time went."""
    print(f"{span.service}, {span.kind}, {span.duration_us / 1000:.1f} ms, trace {span.trace_id}")
    for name, value in sorted(span.tags.items()):
        if name.startswith(("latencyprobe.process", "latencyprobe.calls", "latencyprobe.tcp.unsent")):
            print(f"  {name}: {value}")
    for event in waits(span):
        print(f"  wait: { ({name: value for name, value in event.items() if name != 'event'}) }")


def assert_blocked_in(call: str, reason: str, function: str, slow: Slow, service: str) -> None:
    """On the span that was blocked longest, first in the report, and on the screen."""
    span = slow.longest(service, "blocked")
    show(span)
    assert span.tags["latencyprobe.dominant_stage"] == "process"
    assert span.tags["latencyprobe.process.calls"].startswith(f"{call} ")
    assert span.tags["latencyprobe.process.blocked"] > span.tags["latencyprobe.process.on_cpu"]
    longest = waits(span)[0]
    assert (longest["latencyprobe.syscall"], longest["latencyprobe.reason"]) == (call, reason)
    assert longest["latencyprobe.confidence"] == "thread"
    assert any(frame.startswith(function) for frame in longest["latencyprobe.stack.kernel"].split(";"))

    assert slow.reported[service]["causes"][0]["cause"] == call
    screen = slow.screen(service)
    assert re.search(rf"burned by process .* of process, [0-9.]+ % {told(call)}", screen)
    assert f"of it {told(call)}" in screen


def test_fsync_on_a_slow_disk(slow: Slow) -> None:
    """20 requests a second are few: each commit waits for its blocks, and for the flush behind them."""
    assert_blocked_in("fsync", "disk", "ext4_sync_file", slow, "orders")


def test_page_faults_of_a_container_with_too_little_memory(slow: Slow) -> None:
    """The limit makes the kernel drop one part of the file for the next one: each look-up reads from the disk."""
    assert_blocked_in("page_fault", "disk", "filemap_fault", slow, "search")


def test_a_lock_that_another_thread_holds(slow: Slow) -> None:
    assert_blocked_in("futex", "interruptible", "futex_wait", slow, "stock")


def test_a_container_at_its_cpu_quota(slow: Slow) -> None:
    """A twentieth of a CPU: what computes for 20 ms stands still in three or four periods."""
    span = slow.longest("pricing", "throttled")
    show(span)
    assert span.tags["latencyprobe.process.throttled"] > span.tags["latencyprobe.process.on_cpu"]
    assert waits(span)[0]["latencyprobe.reason"] == "throttled"

    result = slow.reported["pricing"]
    assert result["causes"][0]["cause"] == "throttled"
    (quota,) = (one for one in result["pressure"] if one["kind"] == "throttled")
    assert float(quota["badShare"]) > 10
    screen = slow.screen("pricing")
    assert re.search("of process, [0-9.]+ % throttled by the CPU quota", screen)
    assert "containers were throttled by their CPU quota" in screen
    assert "raise limits.cpu" in screen


def test_an_answer_by_two_writes_that_waits_for_a_delayed_ack(slow: Slow) -> None:
    """Nagle keeps the second one until the client's kernel acknowledges the first, which takes 40 ms."""
    held = [
        both for both in pairs(slow.jaeger, slow.namespace, "web") if "latencyprobe.tcp.unsent.reason" in both[0].tags
    ]
    assert len(held) > TIMES["web"] / 2
    client, server = max(held, key=lambda both: both[0].tags["latencyprobe.tcp.unsent.held"] / both[0].duration_us)
    for span in (client, server):
        show(span)
        said = {name: span.tags[f"latencyprobe.tcp.unsent.{name}"] for name in ("reason", "holder", "size")}
        assert said == {"reason": "nagle", "holder": "server", "size": 400}
    assert client.tags["latencyprobe.dominant_stage"] == "network"

    result = slow.reported["web"]
    (unsent,) = (one for one in result["evidence"] if one["signal"] == "unsent")
    assert unsent["bad"] > result["bad"] / 2 > 0
    assert result["badByStage"][0]["stage"] == "network"
    screen = slow.screen("web")
    assert re.search("unsent hit [0-9.]+ % of the bad ones", screen)
    assert f"bytes of the slowest were held by the server's kernel: {NAGLE}" in screen


def test_links_lead_from_the_first_of_three_services_to_the_slow_one(slow: Slow) -> None:
    """Each hop is a trace of its own: nothing but the links leads on."""
    path = [slow.longest("front", "blocked")]
    while path[-1].links:
        (call,) = path[-1].links
        path.append(served_by(slow.jaeger, *call))
    for span in path:
        show(span)
    assert [(span.kind, span.service) for span in path] == [("server", name) for name in ("front", "cart", "stock")]
    assert len({span.trace_id for span in path}) == len(path)
    assert path[-1].tags["latencyprobe.process.calls"].startswith("futex ")

    for service, following in (("front", "cart"), ("cart", "stock")):
        waited = slow.reported[service]["waitedFor"][0]
        assert waited["peer"] == f"{slow.namespace}/{following}:{PORT}"
        screen = slow.screen(service)
        assert re.search(rf"of process, [0-9.]+ % waiting for {slow.namespace}/{following}:{PORT}", screen)


def served_by(jaeger: Jaeger, trace_id: str, span_id: str) -> Span:
    """Who answered a call: the SERVER span of the trace in which the linked CLIENT span is."""
    both = {client.span_id: server for client, server in linked([jaeger.trace(trace_id)])}
    return both[span_id]
