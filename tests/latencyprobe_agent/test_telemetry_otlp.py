import gzip
import socket
import zlib
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess as PartialSuccess
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from latencyprobe_agent.telemetry import otlp
from latencyprobe_agent.telemetry.endpoints import endpoints
from tests.support.otlp import grpc_collector


def sender(environ: dict[str, str], endpoint: str | None = None) -> otlp.Transport:
    return otlp.transport(endpoints(environ, endpoint)[0])


def test_the_path_of_the_signal_is_added_to_a_base_url_and_headers_are_sent(otlp_sink: Any) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.url + "/",
        "OTEL_EXPORTER_OTLP_HEADERS": "X-Tenant=shop%20one, authorization=Basic%20abc",
    }
    assert sender(environ).send(b"spans") == otlp.Answer()
    path, headers, body = otlp_sink.requests[0]
    assert (path, body) == ("/v1/traces", b"spans")
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["user-agent"].startswith("latencyprobe/")
    assert (headers["x-tenant"], headers["authorization"]) == ("shop one", "Basic abc")


def test_a_signal_s_own_endpoint_is_used_as_it_is(otlp_sink: Any) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere:1",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": otlp_sink.url + "/mine",
    }
    sender(environ).send(b"")
    assert otlp_sink.requests[0][0] == "/mine"


def test_a_flag_wins_over_the_variables(otlp_sink: Any) -> None:
    environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://elsewhere:1/x"}
    sender(environ, otlp_sink.url).send(b"")
    assert otlp_sink.requests[0][0] == "/v1/traces"


@pytest.mark.parametrize(("compression", "expand"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_compression_is_honoured(otlp_sink: Any, compression: str, expand: Any) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.url, "OTEL_EXPORTER_OTLP_COMPRESSION": compression}
    sender(environ).send(b"spans" * 100)
    _, headers, body = otlp_sink.requests[0]
    assert headers["content-encoding"] == compression
    assert expand(body) == b"spans" * 100


@pytest.mark.parametrize(("status", "retryable"), [(503, True), (429, True), (400, False), (404, False), (307, False)])
def test_only_the_specified_answers_are_tried_again(otlp_sink: Any, status: int, retryable: bool) -> None:
    otlp_sink.status = status
    otlp_sink.headers = {"retry-after": "7", "location": otlp_sink.url + "/v1/traces"}
    answer = sender({"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.url}).send(b"x")
    assert (answer.error, answer.retryable, answer.retry_after_s) == (str(status), retryable, 7.0)
    assert len(otlp_sink.requests) == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204])  # 201: Fluent Bit, unless it is told otherwise
def test_every_answer_that_says_success_is_one(otlp_sink: Any, status: int) -> None:
    otlp_sink.status = status
    assert sender({}, otlp_sink.url).send(b"x") == otlp.Answer()


@pytest.mark.parametrize(
    ("hostile", "retry_after_s"),
    [
        ("999999999", 60.0),
        ("Fri, 31 Dec 2999 23:59:59 GMT", 60.0),
        ("Mon, 99999999999999999999 Jan 2024 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", 0.0),
    ],
)
def test_a_hostile_retry_after_is_bounded(otlp_sink: Any, hostile: str, retry_after_s: float) -> None:
    otlp_sink.status = 503
    otlp_sink.headers = {"retry-after": hostile}
    answer = sender({"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.url}).send(b"x")
    assert answer.retry_after_s == retry_after_s


def test_spans_that_an_accepted_request_lost_are_counted(otlp_sink: Any) -> None:
    partial = PartialSuccess(rejected_spans=3, error_message="too old")
    otlp_sink.body = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    answer = sender({"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.url}).send(b"x")
    assert answer == otlp.Answer(detail="too old", rejected=3)


@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8", "application/xhtml+xml"])
def test_a_web_page_is_no_collector_though_it_answers_200(otlp_sink: Any, content_type: str) -> None:
    otlp_sink.headers = {"content-type": content_type}
    answer = sender({}, otlp_sink.url).send(b"")
    assert (answer.error, answer.retryable) == ("not_a_collector", False)
    assert "web page" in answer.detail


@pytest.mark.parametrize("content_type", ["application/x-protobuf", "application/json", "text/plain"])
def test_what_collectors_answer_with_besides_is_no_matter(otlp_sink: Any, content_type: str) -> None:
    otlp_sink.headers = {"content-type": content_type}
    assert sender({}, otlp_sink.url).send(b"") == otlp.Answer()


def test_an_unreachable_collector_is_an_answer_too() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = sender({}, f"http://127.0.0.1:{unused.getsockname()[1]}").send(b"x")
    assert answer.retryable
    assert answer.detail == "Connection refused"


RETRY_INFO = "google.rpc.retryinfo-bin"
DETAILS = "grpc-status-details-bin"


def retry_info(seconds: int) -> Any:
    """Return google.rpc.RetryInfo."""
    details = pytest.importorskip("google.rpc.error_details_pb2")
    return details.RetryInfo(retry_delay={"seconds": seconds})


def details(*some: Any) -> bytes:
    """Return google.rpc.Status with details, as servers in Go send it."""
    status = pytest.importorskip("google.rpc.status_pb2").Status(code=8, message="too much")
    for one in some:
        status.details.add().Pack(one)
    return bytes(status.SerializeToString())


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
@pytest.mark.parametrize(
    ("trailer", "wait_s"),
    [
        (lambda: (DETAILS, details(ExportTraceServiceResponse(), retry_info(7))), 7.0),
        (lambda: (DETAILS, details(retry_info(10**9))), 60.0),
        (lambda: (DETAILS, details(retry_info(-7))), 0.0),
        (lambda: (DETAILS, details(ExportTraceServiceResponse())), None),
        (lambda: (DETAILS, b"\xff\xff"), None),
        (lambda: (RETRY_INFO, retry_info(7).SerializeToString()), 7.0),
        (lambda: (RETRY_INFO, b"\xff\xff"), None),
    ],
)
def test_a_grpc_collector_says_when_to_come_again(trailer: Any, wait_s: float | None, code: str) -> None:
    grpc = pytest.importorskip("grpc")

    def export(_: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((trailer(),))
        context.abort(grpc.StatusCode[code], "too much")
        raise AssertionError

    with grpc_collector(export) as url:
        answer = sender({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).send(b"")
    assert (answer.error, answer.retry_after_s) == (code, wait_s or 0.0)
    assert answer.retryable == (code == "UNAVAILABLE" or wait_s is not None)


def test_a_real_grpc_collector_takes_the_same_bytes() -> None:
    grpc = pytest.importorskip("grpc")
    received: list[bytes] = []

    def export(body: bytes, context: Any) -> bytes:
        received.append(body)
        assert dict(context.invocation_metadata())["user-agent"].startswith("latencyprobe/")
        if body == b"busy":
            context.set_trailing_metadata((("google.rpc.retryinfo-bin", b"\xff\xff"),))  # no protobuf
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
        return ExportTraceServiceResponse().SerializeToString()

    with grpc_collector(export) as url:
        grpc_sender = sender({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
        assert grpc_sender.send(b"") == otlp.Answer()
        refused = grpc_sender.send(b"busy")
    assert received == [b"", b"busy"]
    assert (refused.error, refused.retryable) == ("RESOURCE_EXHAUSTED", False)
    assert grpc_sender.send(b"").retryable
