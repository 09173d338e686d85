"""The OTLP wire: encoded requests to a collector over HTTP/protobuf (default) or gRPC, one attempt at a time.

Receives settings and a request's bytes, returns what became of the attempt. The SDK's exporters take SDK spans and give
a batch up after their timeout; our requests are built without an SDK object per exchange, and an outage must not cost
them.
Source: OpenTelemetry protocol 1.9, "OTLP/HTTP" and "OTLP/gRPC".
"""

import email.utils
import gzip
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import urllib3
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from latencyprobe.errors import innermost
from latencyprobe_agent.config import ConfigError
from latencyprobe_agent.telemetry.endpoints import Settings

_LONGEST_WAIT_S = 60.0  # a hostile Retry-After must not silence us
_ANSWER_BYTES = 64 << 10
_RETRYABLE = (429, 502, 503, 504)  # OTLP/HTTP "Retryable Response Codes"
_METHODS = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}


class Answer(NamedTuple):
    """What became of one attempt. `error` is "" on success, else the `error.type` to count; `detail` is for people.
    `rejected`: items that a collector says to have refused of a request it accepted (never sent again): any number."""

    error: str = ""
    detail: str = ""
    retryable: bool = False
    retry_after_s: float = 0.0
    rejected: int = 0


class Transport(Protocol):
    """Sends one encoded request. Whatever a collector does, nothing is raised."""

    def send(self, body: bytes) -> Answer:
        """Try once, for at most the configured timeout."""


def transport(settings: Settings) -> Transport:
    """Open the transport that the settings name. Raises ConfigError where gRPC is asked for but not installed."""
    return GrpcTransport(settings) if settings.protocol == "grpc" else HttpTransport(settings)


class HttpTransport:
    """OTLP/HTTP with binary protobuf. Redirects are not followed, TLS is verified."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.url
        self._headers = {
            "user-agent": _user_agent(),
            **settings.headers,
            "content-type": "application/x-protobuf",
        }
        compressors: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
        self._compress = compressors.get(settings.compression)
        if self._compress:
            self._headers["content-encoding"] = settings.compression
        self._kind = ExportTraceServiceResponse if settings.signal == "traces" else ExportMetricsServiceResponse
        self._pool = urllib3.PoolManager(
            maxsize=1,
            timeout=settings.timeout_s,
            ca_certs=settings.ca_file,
            cert_file=settings.certificate,
            key_file=settings.key,
        )

    def send(self, body: bytes) -> Answer:
        """Try once."""
        try:
            response = self._pool.request(
                "POST",
                self._url,
                body=self._compress(body) if self._compress else body,
                headers=self._headers,
                redirect=False,
                retries=False,
                preload_content=False,
            )
            answer = response.read(_ANSWER_BYTES)
            response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return Answer(type(error).__name__, innermost(error), retryable=True)
        taken = 200 <= response.status < 300  # OTLP asks for 200; receivers say 201, 202 and 204 too
        if taken and "html" in response.headers.get("content-type", ""):
            return Answer("not_a_collector", "answered with a web page: that is no collector's OTLP port")
        if taken:
            return _taken(answer, self._kind)
        return Answer(
            error=str(response.status),
            detail=f"HTTP {response.status} {response.reason or ''}".strip(),
            retryable=response.status in _RETRYABLE,
            retry_after_s=_retry_after(response.headers.get("retry-after", "")),
        )


class GrpcTransport:
    """OTLP/gRPC, where the optional dependency is installed. The encoded request goes through as it is."""

    def __init__(self, settings: Settings) -> None:
        try:
            import grpc  # noqa: PLC0415 - optional, and 31 MB that HTTP users need not load
            from google.rpc.error_details_pb2 import RetryInfo  # noqa: PLC0415 - same
            from google.rpc.status_pb2 import Status  # noqa: PLC0415 - same
        except ImportError as error:
            raise ConfigError(
                "OTEL_EXPORTER_OTLP_PROTOCOL: grpc needs `pip install 'latencyprobe[grpc]'`, or use http/protobuf"
            ) from error
        self._errors, self._codes, self._retry_info = grpc.RpcError, grpc.StatusCode, RetryInfo
        self._status = Status
        self._headers = tuple((name.lower(), value) for name, value in settings.headers.items())
        self._timeout_s = settings.timeout_s
        self._kind = ExportTraceServiceResponse if settings.signal == "traces" else ExportMetricsServiceResponse
        target = urlsplit(settings.url).netloc
        compression = getattr(grpc.Compression, settings.compression.capitalize(), grpc.Compression.NoCompression)
        options = [("grpc.primary_user_agent", _user_agent())]
        if settings.insecure:
            channel = grpc.insecure_channel(target, options, compression)
        else:
            files = (settings.ca_file, settings.key, settings.certificate)
            credentials = grpc.ssl_channel_credentials(*(Path(file).read_bytes() if file else None for file in files))
            channel = grpc.secure_channel(target, credentials, options, compression)
        self._call = channel.unary_unary(_METHODS[settings.signal])

    def send(self, body: bytes) -> Answer:
        """Try once."""
        try:
            answer = self._call(body, timeout=self._timeout_s, metadata=self._headers)
        except self._errors as error:
            code = error.code()
            wait_s = self._asked_wait_s(error.trailing_metadata() or ())
            codes = self._codes
            retryable = code in (
                codes.CANCELLED,
                codes.DEADLINE_EXCEEDED,
                codes.ABORTED,
                codes.OUT_OF_RANGE,
                codes.UNAVAILABLE,
                codes.DATA_LOSS,
            ) or (code is codes.RESOURCE_EXHAUSTED and wait_s is not None)
            detail = f"gRPC {code.name}: {error.details()}"
            return Answer(code.name, detail, retryable, min(wait_s or 0.0, _LONGEST_WAIT_S))
        return _taken(answer, self._kind)

    def _asked_wait_s(self, trailer: Iterable[tuple[str, bytes]]) -> float | None:
        """Return for how long the collector asks to wait, seconds; None if it does not, or that cannot be read.

        It is among the details of the status; some servers in Java send it by itself.
        """
        trailers, info = dict(trailer), self._retry_info()
        try:
            if alone := trailers.get("google.rpc.retryinfo-bin"):
                info.ParseFromString(alone)
            else:
                details = self._status.FromString(trailers["grpc-status-details-bin"]).details
                next(detail for detail in details if detail.Is(info.DESCRIPTOR)).Unpack(info)
            return max(0.0, float(info.retry_delay.ToTimedelta().total_seconds()))
        except Exception:
            return None


class FakeTransport(Transport):
    """`Transport` for tests: keeps `bodies`. `answer`: of each attempt; `open`: while it is not set, attempts hang."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer or Answer()
        self.bodies: list[bytes] = []
        self.open = threading.Event()
        self.open.set()

    def send(self, body: bytes) -> Answer:
        """Keep the body."""
        self.open.wait()
        self.bodies.append(body)
        return self.answer


def _user_agent() -> str:
    return f"latencyprobe/{version('latencyprobe')}"


def _taken(body: bytes, kind: type[ExportTraceServiceResponse] | type[ExportMetricsServiceResponse]) -> Answer:
    try:
        partial = kind.FromString(body).partial_success
    except Exception:
        return Answer()
    rejected = int(getattr(partial, "rejected_spans", 0) or getattr(partial, "rejected_data_points", 0))
    return Answer(detail=partial.error_message, rejected=rejected)


def _retry_after(text: str) -> float:
    if text.strip().isdecimal():
        return min(float(text), _LONGEST_WAIT_S)
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(at - time.time(), 0.0), _LONGEST_WAIT_S)
