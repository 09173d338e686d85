"""The operator's own traces and metrics by OpenTelemetry's SDK, where an OTLP endpoint is set; beside /metrics, with
the same figures.

`OTEL_*` variables are the SDK's and its exporters' own (OpenTelemetry, "Environment Variable Specification"). Without
an endpoint, or with `OTEL_SDK_DISABLED=true`, nothing of it is imported.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from latencyprobe_operator.cluster.own_thread import OwnThread
from latencyprobe_operator.metrics import DELIVERY_BUCKETS_S

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

    from latencyprobe_operator.plan.deliveries import Delivery

log = logging.getLogger(__name__)

_SCOPE = "latencyprobe.operator"
_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
_CLOSING_S = 2.0
_FRESH_S = 1.0  # figures that one export shares
_LOOP_S = 2.0


class Telemetry(Protocol):
    """Where the operator's own traces and metrics go."""

    def delivered(self, delivery: Delivery) -> None:
        """Make a trace of a change that the agents follow."""

    def observe(self, seconds: float) -> None:
        """Take the time from a change to a node that follows it."""

    def export(self, collector: Collector) -> None:
        """Export the figures of a collector, read anew each time."""

    def close(self) -> None:
        """Send what is left, for at most 2 s."""


class NoTelemetry:
    """Nobody has asked for any."""

    def delivered(self, delivery: Delivery) -> None:
        """Drop it."""

    def observe(self, seconds: float) -> None:
        """Drop it."""

    def export(self, collector: Collector) -> None:
        """Export nothing."""

    def close(self) -> None:
        """Nothing is left."""


def telemetry(namespace: str, environment: Mapping[str, str] = os.environ) -> Telemetry:
    """Return what the environment asks for. `namespace`: the operator's own."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(map(environment.get, _ENDPOINTS)):
        return NoTelemetry()
    return SdkTelemetry(namespace)


class SdkTelemetry:
    """Batches of spans, and metrics each minute (`OTEL_METRIC_EXPORT_INTERVAL`), in threads of the SDK's own."""

    def __init__(self, namespace: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        own = {"service.version": version("latencyprobe"), "k8s.namespace.name": namespace}
        own |= {"service.instance.id": socket.gethostname(), "k8s.pod.name": socket.gethostname()}
        named = os.environ.get("OTEL_SERVICE_NAME") or "latencyprobe-operator"
        resource = Resource.create({**own, SERVICE_NAME: named})
        self._spans = TracerProvider(resource=resource, shutdown_on_exit=False)  # it would wait for 30 s
        if _wanted("TRACES"):
            self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if _wanted("METRICS") else []
        self._metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._tracer = self._spans.get_tracer(_SCOPE, version("latencyprobe"))
        self._meter = self._metrics.get_meter(_SCOPE, version("latencyprobe"))
        self._delivery = self._meter.create_histogram(
            "latencyprobe.operator.plan.delivery",
            unit="s",
            description="From a change in the cluster until an agent follows it.",
            explicit_bucket_boundaries_advisory=list(DELIVERY_BUCKETS_S),
        )

    def delivered(self, delivery: Delivery) -> None:
        """Make a trace: the change, planning within it, and each node until it follows."""
        from opentelemetry.trace import StatusCode, set_span_in_context  # noqa: PLC0415

        change, followed_s = delivery.change, delivery.followed_s
        unix_ns = _unix_ns()
        ended_s = max([change.planned_s, *(at for at in followed_s.values() if at is not None)])
        whole = self._tracer.start_span("plan change", start_time=unix_ns(change.seen_s))
        whole.set_attribute("latencyprobe.nodes", change.nodes)
        whole.set_attribute("latencyprobe.namespaces", change.namespaces)
        inside = set_span_in_context(whole)
        planning = self._tracer.start_span("plan", inside, start_time=unix_ns(change.began_s))
        planning.end(unix_ns(change.planned_s))
        for node, at_s in sorted(followed_s.items()):
            span = self._tracer.start_span(
                "deliver", inside, start_time=unix_ns(change.planned_s), attributes={"k8s.node.name": node}
            )
            if at_s is None:
                span.set_status(StatusCode.ERROR, "the agent has not followed within a minute")
            span.end(unix_ns(ended_s if at_s is None else at_s))
        whole.end(unix_ns(ended_s))

    def observe(self, seconds: float) -> None:
        """Take the time from a change to a node that follows it."""
        self._delivery.record(seconds)

    def export(self, collector: Collector) -> None:
        """Make an instrument of each gauge and counter that the collector has now. Called in an event loop, that one
        reads them."""
        figures = _Figures(collector)
        for family in collector.collect():
            name, read = f"latencyprobe.operator.{_short(family)}", figures.reader(family.name)
            if family.type == "counter":
                self._meter.create_observable_counter(name, [read], description=family.documentation)
            else:
                self._meter.create_observable_gauge(name, [read], description=family.documentation)

    def close(self) -> None:
        """Send what is left, for at most 2 s: the SDK alone would wait for a collector that does not answer, and with
        it whoever waits for our Lease."""
        thread = OwnThread("telemetry")
        closing = thread.submit(self._close)
        thread.end()
        if not futures.wait([closing], _CLOSING_S).done:
            log.warning("the collector does not take the last traces and metrics within %g s", _CLOSING_S)
        elif error := closing.exception():
            log.warning("the last traces and metrics could not be sent: %s", error)

    def _close(self) -> None:
        self._spans.shutdown()
        self._metrics.shutdown()


def _wanted(signal: str) -> bool:
    """Return whether a signal is exported: `OTEL_TRACES_EXPORTER=none`, for collectors that do not take it."""
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").lower() != "none"


class _Figures:
    """A collector, read once for all instruments of an export: in the event loop that changes what it reads, as the
    SDK asks in a thread of its own."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._loop = _running_loop()
        self._read_s = -math.inf
        self._families: list[Metric] = []

    def reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return the callback of the instrument for one family."""
        from opentelemetry.metrics import Observation  # noqa: PLC0415

        def read(_: CallbackOptions) -> Iterable[Observation]:
            for family in self._read():
                if family.name == name:
                    yield from (Observation(float(sample.value), dict(sample.labels)) for sample in family.samples)

        return read

    def _read(self) -> list[Metric]:
        if time.monotonic() - self._read_s > _FRESH_S:
            if self._loop is None:
                self._families = list(self._collector.collect())
            else:
                self._families = asyncio.run_coroutine_threadsafe(self._collect(), self._loop).result(_LOOP_S)
            self._read_s = time.monotonic()
        return self._families

    async def _collect(self) -> list[Metric]:
        return list(self._collector.collect())


def _short(family: Metric) -> str:
    return family.name.removeprefix("latencyprobe_operator_")


def _unix_ns() -> Callable[[float], int]:
    """Return a function from the monotonic clock to Unix ns, by one reading of both."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda monotonic_s: round(monotonic_s * 1e9) + offset_ns


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
