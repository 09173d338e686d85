"""Data points → OTLP metric requests, grouped by the container that was observed.

Cumulative by default; delta where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE asks for it. Histograms are base-2
exponential ones. Exemplars are of the interval that is exported.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from latencyprobe_agent.telemetry import exemplars
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue, Metric

_REQUEST_BYTES = 3 << 20  # receivers take 4 MiB by default
_POINTS = 100  # of one metric, that are added at once: below 1 MiB whatever they are
_OF_TARGET = 3  # labels that those of a target's points begin with (`metric_points.target_labels`)

Resource = Mapping[str, AttributeValue]
Labels = tuple[tuple[Attribute, AttributeValue], ...]


class Histogram(NamedTuple):
    """Counts of consecutive buckets: `counts[i]` is bucket `offset + i` at `scale`; `zero` had no duration at all.
    `exemplars`: EXEMPLAR[2] of what has been counted since the last export, or none."""

    counts: NDArray[np.int64]
    offset: int
    scale: int
    zero: int
    sum_s: float
    exemplars: NDArray[np.void] = exemplars.NO_EXEMPLARS


class Point(NamedTuple):
    """One series now. `observed`: identifies the resource among the points of one export. `start_unix_ns`: what it
    counts from, if that is later than the start of all."""

    observed: object
    metric: Metric
    labels: Labels
    value: int | float | Histogram
    start_unix_ns: int = 0


def _group(request: ExportMetricsServiceRequest, resource: Resource) -> pb.ResourceMetrics:
    group: pb.ResourceMetrics = request.resource_metrics.add()
    fill(group.resource.attributes, resource)
    group.scope_metrics.add().scope.name = names.SCOPE
    return group


def _parts(metrics: Mapping[Metric, list[Point]]) -> Iterator[tuple[Metric, list[Point]]]:
    for metric, series in metrics.items():
        for first in range(0, len(series), _POINTS):
            yield metric, series[first : first + _POINTS]


class MetricRequests:
    """Keeps the time that points count from, and for `delta` temporality what was sent before."""

    def __init__(self, start_unix_ns: int, *, delta: bool = False) -> None:
        self._start_unix_ns = start_unix_ns
        self._anew_unix_ns: dict[Labels, int] = {}
        self.delta = delta
        self._before: dict[tuple[object, str, Labels], Point] = {}

    def forget(self, owners: Set[int]) -> None:
        """Forget what was sent of owners that are gone."""
        if owners:
            self._before = {key: point for key, point in self._before.items() if key[0] not in owners}

    def begin_anew(self, targets: Iterable[Labels], unix_ns: int) -> None:
        """Let the totals of targets, which have been sent, count from this moment. `targets`: the labels that theirs
        begin with."""
        anew = dict.fromkeys(targets, unix_ns)
        self._anew_unix_ns |= anew
        self._before = {key: point for key, point in self._before.items() if key[2][:_OF_TARGET] not in anew}

    def encode(
        self, points: Iterable[Point], resources: Mapping[object, Resource], now_unix_ns: int
    ) -> Iterator[tuple[bytes, int]]:
        """Yield (encoded ExportMetricsServiceRequest, number of points). `resources`: by `Point.observed`."""
        grouped: dict[object, dict[Metric, list[Point]]] = {}
        for point in points:
            if self.delta and point.metric.kind != "gauge":
                point = self._since_before(point)  # noqa: PLW2901 - the same point, from another start
            grouped.setdefault(point.observed, {}).setdefault(point.metric, []).append(point)
        request, count, size = ExportMetricsServiceRequest(), 0, 0
        for observed, metrics in grouped.items():
            group, into = None, pb.Metric()
            for metric, series in _parts(metrics):
                if size > _REQUEST_BYTES:
                    yield request.SerializeToString(), count
                    request, count, size, group = ExportMetricsServiceRequest(), 0, 0, None
                if group is None:
                    group, into = _group(request, resources[observed]), pb.Metric()
                    size += group.ByteSize()
                if into.name != metric.name:
                    into = group.scope_metrics[0].metrics.add()
                size -= into.ByteSize()
                self._metric(into, metric, series, now_unix_ns)
                count += len(series)
                size += into.ByteSize()
        if count:
            yield request.SerializeToString(), count
        if self.delta:
            self._start_unix_ns = now_unix_ns

    def _metric(self, into: pb.Metric, metric: Metric, series: list[Point], now_unix_ns: int) -> None:
        into.name, into.unit, into.description = metric.name, metric.unit, metric.description
        temporality = pb.AGGREGATION_TEMPORALITY_DELTA if self.delta else pb.AGGREGATION_TEMPORALITY_CUMULATIVE
        if metric.kind == "histogram":
            into.exponential_histogram.aggregation_temporality = temporality
        elif metric.kind == "counter":
            into.sum.aggregation_temporality = temporality
            into.sum.is_monotonic = True
        for point in series:
            anew_unix_ns = self._anew_unix_ns.get(point.labels[:_OF_TARGET], 0)
            start_unix_ns = max(self._start_unix_ns, point.start_unix_ns, anew_unix_ns)
            if isinstance(point.value, Histogram):
                self._histogram(into.exponential_histogram.data_points.add(), point, start_unix_ns, now_unix_ns)
                continue
            number = (into.gauge if metric.kind == "gauge" else into.sum).data_points.add()
            number.time_unix_nano = now_unix_ns
            if metric.kind == "counter":
                number.start_time_unix_nano = start_unix_ns
            fill(number.attributes, dict(point.labels))
            if isinstance(point.value, int):
                number.as_int = point.value
            else:
                number.as_double = point.value

    def _histogram(
        self, into: pb.ExponentialHistogramDataPoint, point: Point, start_unix_ns: int, now_unix_ns: int
    ) -> None:
        assert isinstance(point.value, Histogram)
        counts, offset, scale, zero, sum_s, some = point.value
        into.start_time_unix_nano, into.time_unix_nano = start_unix_ns, now_unix_ns
        fill(into.attributes, dict(point.labels))
        into.scale, into.zero_count, into.sum = scale, zero, sum_s
        into.count = int(counts.sum()) + zero
        filled = np.flatnonzero(counts)
        if len(filled):
            first, last = int(filled[0]), int(filled[-1])
            into.positive.offset = offset + first
            into.positive.bucket_counts.extend(counts[first : last + 1].tolist())
        exemplars.write(some, into)

    def _since_before(self, point: Point) -> Point:
        """Return what a point has gained since it was last sent; all of it, if it has begun anew."""
        key = (point.observed, point.metric.name, point.labels)
        before, self._before[key] = self._before.get(key), point
        if before is None or before.start_unix_ns != point.start_unix_ns:
            return point
        now, then = point.value, before.value
        if isinstance(now, Histogram) and isinstance(then, Histogram):
            gained = now._replace(
                counts=now.counts - then.counts, zero=now.zero - then.zero, sum_s=now.sum_s - then.sum_s
            )
            return point if min(int(gained.counts.min()), gained.zero) < 0 else point._replace(value=gained)
        assert not isinstance(now, Histogram)
        assert not isinstance(then, Histogram)
        return point if now < then else point._replace(value=now - then)
