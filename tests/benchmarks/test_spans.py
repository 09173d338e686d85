import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan

from benchmarks import sdk_spans
from benchmarks.sdk_spans import Stock
from benchmarks.spans import Mix, cost_of_spans, ours, turns_of
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from tests.support.otlp import spans as parsed
from tests.support.otlp import values


def said(span: Span) -> tuple:
    """All that both sides say: ids are their own."""
    fields = (span.start_time_unix_nano, span.end_time_unix_nano, span.kind, span.name, span.parent_span_id)
    events = [(event.name, event.time_unix_nano) for event in span.events]
    return (*fields, span.status.code, str(events), str(sorted(values(span.attributes).items())))


@pytest.mark.parametrize("mix", [Mix(spans=300), Mix(spans=300, peers=200, joined=0.5, failed=0.3)])
def test_both_sides_say_the_same_of_the_same_exchanges(mix: Mix, monkeypatch: pytest.MonkeyPatch) -> None:
    ours(list(turns_of(mix)), outbox := FakeOutbox())
    wanted = parsed(outbox.bodies)
    assert len(wanted) - sum(span.kind == Span.SPAN_KIND_INTERNAL for _, span in wanted) == mix.spans
    taken: list[bytes] = []

    def encode(ended: list[ReadableSpan]) -> object:
        request = encode_spans(ended)
        taken.append(request.SerializeToString())
        return request

    monkeypatch.setattr(sdk_spans, "encode_spans", encode)
    Stock(wanted).run()
    found = parsed(taken)

    def told(of: list) -> list:
        return sorted(map(said, (span for _, span in of)))

    assert told(found) == told(wanted)


def test_the_cost_has_both_sides_and_their_ratio() -> None:
    found = cost_of_spans(100, 2)
    assert found["ours"]["bytes_per_span"] > 1000
    assert found["sdk"]["bytes_per_span"] > 1000
    median, low, high = found["ratio"]
    assert 0 < low <= median <= high
