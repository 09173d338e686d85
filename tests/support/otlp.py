"""OTLP as a collector has it: a sink for requests over HTTP, and what the official parser finds in their bodies."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Attributes = tuple[tuple[str, Any], ...]


class OtlpSink(ThreadingHTTPServer):
    """Keeps each request: path, headers, body. `status`, `headers` and `body` are what it answers."""

    daemon_threads = True

    def __init__(self, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _SinkHandler)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b""

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def bodies(self, signal: str) -> list[bytes]:
        """Bodies so far of `traces` or `metrics`."""
        return [body for path, _, body in self.requests if path == f"/v1/{signal}"]


class _SinkHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OtlpSink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers, body))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def grpc_collector(export: Callable[[bytes, Any], bytes]) -> Iterator[str]:
    """A collector over gRPC, at the URL. `export`: what it answers to a request; gets gRPC's context too."""
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    for service in ("trace.v1.TraceService", "metrics.v1.MetricsService"):
        name = f"opentelemetry.proto.collector.{service}"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class Series(NamedTuple):
    """What a point is a value of. Attributes in the order of the request."""

    resource: Attributes
    metric: str
    labels: Attributes


class Point(NamedTuple):
    """The value of a counter, or how many values a histogram has, and since when it counts."""

    value: float
    start_unix_ns: int


def values(attributes: Iterable[Any]) -> dict[str, Any]:
    """Attributes of anything, by name."""
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}


def spans(bodies: Iterable[bytes]) -> list[tuple[dict[str, Any], Span]]:
    """(attributes of its resource, span) of each."""
    return [
        (values(group.resource.attributes), span)
        for body in bodies
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def of_rpcs(bodies: Iterable[bytes]) -> list[tuple[dict[str, Any], Span]]:
    """The same without the stages that are spans of their own."""
    return [(resource, span) for resource, span in spans(bodies) if span.kind != Span.SPAN_KIND_INTERNAL]


def stages_ns(found: Iterable[Span]) -> dict[tuple[bytes, bytes], dict[str, int]]:
    """The stages that are spans of their own: how long each took, by trace id and the id of their parent."""
    told: dict[tuple[bytes, bytes], dict[str, int]] = {}
    for span in found:
        if span.kind == Span.SPAN_KIND_INTERNAL:
            of_parent = told.setdefault((span.trace_id, span.parent_span_id), {})
            assert span.name not in of_parent, f"{span.name} twice"
            of_parent[span.name] = span.end_time_unix_nano - span.start_time_unix_nano
    return told


def metrics(bodies: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], Metric]]:
    """(attributes of its resource, metric) of each."""
    for body in bodies:
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    yield values(group.resource.attributes), metric


def points(bodies: Iterable[bytes]) -> dict[Series, Point]:
    """The newest point of each counter and histogram."""
    found: dict[Series, Point] = {}
    for body in bodies:
        of_body: dict[Series, Point] = {}
        for resource, metric in metrics([body]):
            for point in (*metric.sum.data_points, *metric.exponential_histogram.data_points):
                series = Series(tuple(resource.items()), metric.name, tuple(values(point.attributes).items()))
                value = (point.as_int or point.as_double) if metric.HasField("sum") else point.count
                assert series not in of_body, f"{series} twice in one request"
                of_body[series] = Point(value, point.start_time_unix_nano)
        found |= of_body
    return found
