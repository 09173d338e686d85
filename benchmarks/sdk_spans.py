"""The OpenTelemetry SDK's cheapest way from a span to the bytes of a request: what our spans are held against.

No queue, no thread, no network: spans are started, ended, and encoded 512 at a time, as its batch processor would.
"""

import json
from typing import Any, NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from tests.support.otlp import values

SDK_BATCH = 512  # of the SDK's batch processor
KINDS = {
    Span.SPAN_KIND_SERVER: SpanKind.SERVER,
    Span.SPAN_KIND_CLIENT: SpanKind.CLIENT,
    Span.SPAN_KIND_INTERNAL: SpanKind.INTERNAL,
}


class Sink(SpanProcessor):
    """Encodes spans as they end and counts bytes."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)
        if len(self._ended) >= SDK_BATCH:
            self.flush()

    def flush(self) -> None:
        if self._ended:
            self.size_bytes += len(encode_spans(self._ended).SerializeToString())
            self._ended = []


class Call(NamedTuple):
    """One span as a program would describe it."""

    tracer: Tracer
    name: str
    kind: SpanKind
    parent: SpanContext | None
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Any]
    events: list[tuple[str, int]]


class Stock:
    """The same spans through the OpenTelemetry SDK."""

    def __init__(self, wanted: list[tuple[dict[str, Any], Span]]) -> None:
        self._sink = Sink()
        tracers: dict[str, Tracer] = {}
        self._calls = []
        for resource, span in wanted:
            key = json.dumps(resource, sort_keys=True)
            if key not in tracers:
                provider = TracerProvider(resource=Resource(resource), shutdown_on_exit=False)
                provider.add_span_processor(self._sink)
                tracers[key] = provider.get_tracer("latencyprobe")
            self._calls.append(call(tracers[key], span))

    def run(self) -> int:
        """Make all spans and return the size of their requests."""
        before = self._sink.size_bytes
        for tracer, name, kind, parent, start_ns, end_ns, failed, attributes, events in self._calls:
            context = set_span_in_context(NonRecordingSpan(parent)) if parent else None
            span = tracer.start_span(name, context, kind, attributes, start_time=start_ns)
            for event, at_ns in events:
                span.add_event(event, timestamp=at_ns)
            if failed:
                span.set_status(StatusCode.ERROR)
            span.end(end_ns)
        self._sink.flush()
        return self._sink.size_bytes - before


def call(tracer: Tracer, span: Span) -> Call:
    trace_id, parent = int.from_bytes(span.trace_id, "big"), int.from_bytes(span.parent_span_id, "big")
    kind = KINDS[span.kind]
    return Call(
        tracer,
        span.name,
        kind,
        SpanContext(trace_id, parent, is_remote=kind is not SpanKind.INTERNAL, trace_flags=TraceFlags(1))
        if parent
        else None,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.HasField("status"),
        values(span.attributes),
        [(event.name, event.time_unix_nano) for event in span.events],
    )
