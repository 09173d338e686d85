"""Data points → OTLP metric requests, grouped by the container that was observed.

Cumulative by default; delta where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE asks for it. Histograms are base-2
exponential ones. Exemplars are of the interval that is exported.
"""

from collections import defaultdict
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
_FEW = 500  # points of a namespace that go into requests together with others'
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


class Request(NamedTuple):
    """`body`: an encoded ExportMetricsServiceRequest, of so many `points`; `whose`: the namespaces that have some."""

    body: bytes
    points: int
    whose: tuple[str, ...]


def _group(request: ExportMetricsServiceRequest, resource: Resource) -> pb.ResourceMetrics:
    group: pb.ResourceMetrics = request.resource_metrics.add()
    fill(group.resource.attributes, resource)
    group.scope_metrics.add().scope.name = names.SCOPE
    return group


def _together(points: Iterable[Point]) -> list[tuple[tuple[str, ...], list[Point]]]:
    """Return points by namespaces: those of who has few in one, else each namespace's."""
    of: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        of[_namespace(point)].append(point)
    few = [name for name, some in of.items() if len(some) <= _FEW]
    parts = [(tuple(few), [point for name in few for point in of[name]])] if few else []
    return parts + [((name,), some) for name, some in of.items() if len(some) > _FEW]


def _namespace(point: Point) -> str:
    """Return the namespace of a point's LatencyProbe, "" where it has none."""
    return next((str(value) for name, value in point.labels[:_OF_TARGET] if name is names.PROBE_NAMESPACE), "")


def _parts(points: Iterable[Point]) -> Iterator[tuple[object, Metric, list[Point]]]:
    """Yield points that belong side by side, at most _POINTS: of one resource and metric."""
    grouped: dict[object, dict[Metric, list[Point]]] = {}
    for point in points:
        grouped.setdefault(point.observed, {}).setdefault(point.metric, []).append(point)
    for observed, metrics in grouped.items():
        for metric, series in metrics.items():
            for first in range(0, len(series), _POINTS):
                yield observed, metric, series[first : first + _POINTS]


def _is_of_target(labels: Labels) -> bool:
    return bool(labels) and labels[0][0] is names.PROBE


def _whose(metric: str, labels: Labels) -> Labels:
    """Return the labels that all series of the same target begin with, or of the same definition of an objective."""
    return labels[:-1] if metric == names.SLO_EVENTS.name else labels[:_OF_TARGET]


def _kept(point: Point) -> Point:
    """Return a point that stays as it is while its series is counted on."""
    value = point.value
    return point._replace(value=value._replace(counts=value.counts.copy())) if isinstance(value, Histogram) else point


class MetricRequests:
    """Keeps the time that points count from, and for `delta` temporality what was sent before."""

    def __init__(self, start_unix_ns: int, *, delta: bool = False) -> None:
        self._start_unix_ns = self._exported_unix_ns = start_unix_ns
        self._anew_unix_ns: dict[Labels, int] = {}
        self.delta = delta
        self._before: dict[tuple[object, str, Labels], Point] = {}

    def forget(self, owners: Set[int]) -> None:
        """Forget what was sent of owners that are gone."""
        if owners:
            self._before = {key: point for key, point in self._before.items() if key[0] not in owners}

    def begin_anew(self, targets: Iterable[Labels], left: Set[Labels], unix_ns: int) -> None:
        """Let the totals of targets, which have been sent, count from this moment. `targets`: the labels that theirs
        begin with; `left`: those of all targets that have totals, and all labels but the outcome of the events of
        objectives that have."""
        anew = dict.fromkeys(targets, unix_ns)
        self._anew_unix_ns = {one: at for one, at in (self._anew_unix_ns | anew).items() if one in left}
        self._before = {
            key: point
            for key, point in self._before.items()
            if not _is_of_target(key[2]) or (key[2][:_OF_TARGET] not in anew and _whose(*key[1:]) in left)
        }

    def stepped_back(self, unix_ns: int) -> bool:
        """Return whether the wall clock has stepped back, to this moment, since the last export. Then nothing counts
        from later than it: a start that is the time of its first point says that it is not known (OpenTelemetry's data
        model, "Unknown Start Time")."""
        before, self._exported_unix_ns = self._exported_unix_ns, unix_ns
        if unix_ns >= before:
            return False
        self._start_unix_ns = min(self._start_unix_ns, unix_ns)
        self._anew_unix_ns = {one: min(at, unix_ns) for one, at in self._anew_unix_ns.items()}
        self._before = {
            key: point._replace(start_unix_ns=min(point.start_unix_ns, unix_ns)) for key, point in self._before.items()
        }
        return True

    def encode(
        self, points: Iterable[Point], resources: Mapping[object, Resource], now_unix_ns: int
    ) -> Iterator[Request]:
        """Yield what is to be sent. `resources`: by `Point.observed`."""
        if self.delta:
            points = [self._since_before(point) for point in points]
        for whose, some in _together(points):
            for body, count in self._encode(some, resources, now_unix_ns):
                yield Request(body, count, whose)
        if self.delta:
            self._start_unix_ns = now_unix_ns

    def _encode(
        self, points: Iterable[Point], resources: Mapping[object, Resource], now_unix_ns: int
    ) -> Iterator[tuple[bytes, int]]:
        request, count, size = ExportMetricsServiceRequest(), 0, 0
        of: object = None
        group, into = pb.ResourceMetrics(), pb.Metric()
        for observed, metric, series in _parts(points):
            if size > _REQUEST_BYTES:
                yield request.SerializeToString(), count
                request, count, size, of = ExportMetricsServiceRequest(), 0, 0, None
            if of != observed:
                of, group, into = observed, _group(request, resources[observed]), pb.Metric()
                size += group.ByteSize()
            if into.name != metric.name:
                into = group.scope_metrics[0].metrics.add()
            size -= into.ByteSize()
            self._metric(into, metric, series, now_unix_ns)
            count += len(series)
            size += into.ByteSize()
        if count:
            yield request.SerializeToString(), count

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
        if point.metric.kind == "gauge":
            return point
        key = (point.observed, point.metric.name, point.labels)
        before, self._before[key] = self._before.get(key), _kept(point)
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
