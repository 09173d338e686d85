"""A client of Redis in Python, bare or with a span of the OpenTelemetry SDK around each call; a process of its own.

python -m benchmarks.sdk_client PORT CALLS [OTLP_URL]   prints the CPU time of all its threads per call, in ns

The SDK is as its users have it: a tracer provider with a batch processor and the OTLP exporter over HTTP; only the
queue holds all spans, since the default one would drop most of them at this rate and look cheaper than it is. They are
flushed before the clock is read.
"""

import socket
import sys
import time
from collections.abc import Callable

_REQUEST, _ANSWER = b"GET k\r\n", b"$-1\r\n"
_WARM_UP = 500


def main(port: int, calls: int, url: str) -> None:
    """Make the calls and print what one took."""
    with socket.create_connection(("127.0.0.1", port)) as connection:

        def get() -> None:
            connection.sendall(_REQUEST)
            assert connection.recv(64) == _ANSWER

        call, flush = traced(get, port, calls + _WARM_UP, url) if url else (get, lambda: True)
        for _ in range(_WARM_UP):
            call()
        began = time.process_time_ns()
        for _ in range(calls):
            call()
        assert flush(), "the sink did not take all spans"
        print((time.process_time_ns() - began) / calls)


def traced(get: Callable[[], None], port: int, spans: int, url: str) -> tuple[Callable[[], None], Callable[[], bool]]:
    """(The call with a span around it, what sends the rest), as instrumentation of a client does it."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - not if bare
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    provider = TracerProvider(resource=Resource({"service.name": "client"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces"), max_queue_size=spans))
    tracer = provider.get_tracer("benchmarks")
    attributes: dict[str, str | int] = {
        "db.system.name": "redis",
        "db.operation.name": "GET",
        "server.address": "127.0.0.1",
        "server.port": port,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": port,
    }

    def call() -> None:
        with tracer.start_as_current_span("GET", kind=SpanKind.CLIENT, attributes=attributes):
            get()

    return call, provider.force_flush


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
