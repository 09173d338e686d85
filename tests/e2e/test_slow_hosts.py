"""Services that are slow for a known reason each, from `kubectl apply` to the cause in three commands.

All are asked at a time and measured by one LatencyProbe. Tests look at their spans in Jaeger, at their objectives in
the LatencyReport, and at what a person reads on the way that docs/symptoms.md shows.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from latencyprobe.causes import told
from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster
from tests.e2e.bench.jaeger import Jaeger, Span, linked
from tests.e2e.bench.slow import PORT
from tests.e2e.probes import pairs
from tests.e2e.slow_services import TIMES, Slow, Symptom, says, show, slow_services, symptoms, waits, way

pytestmark = pytest.mark.e2e

NAGLE = "Nagle, until the client's ACK: set TCP_NODELAY or write once"
LIST, REPORT, EXPLAIN = way()


@pytest.fixture(scope="module")
def slow(chart: Chart, cluster: Cluster, jaeger: Jaeger) -> Iterator[Slow]:
    chart.install({"agent": {"kernelNames": True}})
    with slow_services(cluster, jaeger) as found:
        yield found


@pytest.mark.parametrize("symptom", symptoms(), ids=lambda symptom: symptom.service)
def test_three_commands_lead_to_the_cause_as_the_docs_say(slow: Slow, symptom: Symptom) -> None:
    objective = slow.reported[symptom.service]
    listed, report, explained = (slow.told(symptom.service, command) for command in (LIST, REPORT, EXPLAIN))
    print(f"{objective['bad']} of {objective['events']} bad")
    assert re.search(r"\bViolated\b", listed)
    assert [phrase for phrase in symptom.reported if not says(report, phrase)] == []
    assert [phrase for phrase in symptom.explained if not says(explained, phrase)] == []


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
    # the kernel may skip the firing at which the stack is taken: then a wait has none (limits.md, "Skipped programs")
    every = [one for served in slow.served[service] for one in waits(served) if one.get("latencyprobe.syscall") == call]
    with_stack = [one for one in every if "latencyprobe.stack.kernel" in one]
    assert len(with_stack) > len(every) / 2
    stack = max(with_stack, key=lambda one: one["latencyprobe.wait"])["latencyprobe.stack.kernel"]
    assert any(frame.startswith(function) for frame in stack.split(";"))

    assert slow.reported[service]["causes"][0]["cause"] == call
    screen = slow.told(service, REPORT)
    assert re.search(rf"burned by process .* of process, [0-9.]+ % {told(call)}", screen)


def test_fsync_on_a_slow_disk(slow: Slow) -> None:
    """20 requests a second are few: each commit waits for its blocks, and for the flush behind them."""
    assert_blocked_in("fsync", "disk", "ext4_sync_file", slow, "orders")


def test_page_faults_of_a_container_with_too_little_memory(slow: Slow) -> None:
    """The limit makes the kernel drop one part of the file for the next one: each look-up reads from the disk."""
    assert_blocked_in("page_fault", "disk", "filemap_fault", slow, "search")


def test_a_lock_that_another_thread_holds(slow: Slow) -> None:
    assert_blocked_in("futex", "interruptible", "futex_wait", slow, "stock")


def test_a_container_at_its_cpu_quota(slow: Slow) -> None:
    """A twentieth of a CPU: what computes for 20 ms stands still in three or four periods; other threads wait too."""
    span = slow.longest("pricing", "throttled")
    show(span)
    assert span.tags["latencyprobe.process.throttled"] > span.tags["latencyprobe.process.on_cpu"]
    waited_s = Counter[str]()
    for one in waits(span):
        waited_s[one["latencyprobe.reason"]] += one["latencyprobe.wait"]
    assert max(waited_s, key=waited_s.__getitem__) == "throttled"

    result = slow.reported["pricing"]
    assert result["causes"][0]["cause"] == "throttled"
    (quota,) = (one for one in result["pressure"] if one["kind"] == "throttled")
    assert float(quota["badShare"]) > 10
    screen = slow.told("pricing", REPORT)
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
    screen = slow.told("web", REPORT)
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
        screen = slow.told(service, REPORT)
        assert re.search(rf"of process, [0-9.]+ % waiting for {slow.namespace}/{following}:{PORT}", screen)


def served_by(jaeger: Jaeger, trace_id: str, span_id: str) -> Span:
    """Who answered a call: the SERVER span of the trace in which the linked CLIENT span is."""
    both = {client.span_id: server for client, server in linked([jaeger.trace(trace_id)])}
    return both[span_id]
