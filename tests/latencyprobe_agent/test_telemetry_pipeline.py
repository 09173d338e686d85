from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.telemetry.endpoints import endpoints
from latencyprobe_agent.telemetry.pipeline import Origin, Pipeline
from latencyprobe_agent.telemetry.selfmetrics import AgentStats
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
PLAN = NodePlan("host", 1, "", (ECHO,), (), host=True)
RULES = Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")})
OWN = AgentStats(0, {}, 0.0, 0.0)


class Owners:
    """Resources of which some have ended."""

    by_process = True

    def __init__(self) -> None:
        self.gone: set[int] = set()

    def attributes(self, owner: int) -> Mapping[str, str | int]:
        return {"service.name": f"service-{owner}"}

    def ended(self, owner: int) -> bool:
        return owner in self.gone


@pytest.fixture
def pipeline(otlp_sink: Any) -> Iterator[Pipeline]:
    origin = Origin(Config(), peers=None, shared_key=False, start_unix_ns=0)
    made = Pipeline.open(origin, endpoints({}, otlp_sink.url), delta=False)
    made.use(PLAN, RULES)
    yield made
    made.stop(5)


def counts(**events: int) -> Counts:
    """Events by owner: `_7=3`."""
    keys, totals = np.zeros(len(events), COUNTS_KEY), np.zeros(len(events), COUNTS)
    keys["target_set"], keys["role"] = 1, Role.SERVER
    keys["owner"] = [int(owner[1:]) for owner in events]
    totals["outcomes"][:, Outcome.OK] = list(events.values())
    return Counts(keys, totals)


def services(sink: Any) -> list[set[str]]:
    """Return the service names in each metrics request."""
    return [
        {
            attribute.value.string_value
            for group in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for attribute in group.resource.attributes
            if attribute.key == "service.name"
        }
        for path, _, body in sink.requests
        if path == "/v1/metrics"
    ]


def test_an_owner_that_has_ended_is_exported_until_its_last_counts_are_out(pipeline: Pipeline, otlp_sink: Any) -> None:
    owners = Owners()
    pipeline.export(counts(_7=3, _8=1), owners, OWN, 1)
    owners.gone = {7}
    pipeline.export(counts(_7=5, _8=1), owners, OWN, 2)
    pipeline.export(counts(_7=5, _8=1), owners, OWN, 3)
    pipeline.stop(5)
    agent = "latencyprobe-agent"
    assert services(otlp_sink) == [{"service-7", "service-8", agent}] * 2 + [{"service-8", agent}]


def test_a_batch_becomes_linked_spans_only_of_what_was_chosen(
    pipeline: Pipeline, otlp_sink: Any, make_halves: Any
) -> None:
    slow = (0, 0, 2 * 10**9, 0)
    batch = make_halves(
        {"role": Role.CLIENT, "stages": (0, 2 * 10**9, 0, 0)},
        {"role": Role.SERVER, "stages": slow},
        {"role": Role.SERVER, "stages": (0, 5, 0, 0), "request_seq": 9},
        {"role": Role.SERVER, "stages": slow, "request_seq": 10, "excluded": 1},
    )
    pipeline.choose(batch, now_ns=0)
    pipeline.measure(batch, LocalJoin().join(batch), now_ns=0)
    pipeline.send_spans(Owners(), now_ns=0, unix_offset_ns=0)
    pipeline.stop(5)
    assert [path for path, _, _ in otlp_sink.requests] == ["/v1/traces"]
    assert pipeline.outboxes["traces"].sent_items == 2


def reasons(sink: Any) -> dict[int, str]:
    """Return `latencyprobe.sampled.reason` by the kind of span."""
    return {
        span.kind: next(a.value.string_value for a in span.attributes if a.key == "latencyprobe.sampled.reason")
        for path, _, body in sink.requests
        if path == "/v1/traces"
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for span in group.scope_spans[0].spans
    }


@pytest.mark.parametrize("apart", [False, True], ids=["in one batch", "the slow one first"])
def test_a_slow_half_takes_its_other_half_along(
    pipeline: Pipeline, otlp_sink: Any, make_halves: Any, apart: bool
) -> None:
    client = {"role": Role.CLIENT, "stages": (0, 2 * 10**9, 0, 0)}
    server = {"role": Role.SERVER, "stages": (0, 0, 10**8, 0)}
    join = LocalJoin()
    for batch in [make_halves(client), make_halves(server)] if apart else [make_halves(client, server)]:
        pipeline.choose(batch, now_ns=0)
        pipeline.measure(batch, join.join(batch), now_ns=0)
    pipeline.send_spans(Owners(), now_ns=0, unix_offset_ns=0)
    pipeline.stop(5)
    assert reasons(otlp_sink) == {Span.SPAN_KIND_CLIENT: "slow", Span.SPAN_KIND_SERVER: "other_half"}


def test_what_another_node_asks_for_becomes_a_span_within_a_budget_of_its_own(
    pipeline: Pipeline, otlp_sink: Any, make_halves: Any
) -> None:
    asked = make_halves(*({"role": Role.SERVER, "request_seq": i} for i in range(POLICY.max_per_second + 7)))
    nothing = LocalJoin().join(make_halves())
    pipeline.recalled(nothing, {}, asked, now_ns=0)
    pipeline.send_spans(Owners(), now_ns=0, unix_offset_ns=0, all_of_them=True)
    pipeline.stop(5)
    assert pipeline.outboxes["traces"].sent_items == POLICY.max_per_second
    assert reasons(otlp_sink) == {Span.SPAN_KIND_SERVER: "other_half"}
