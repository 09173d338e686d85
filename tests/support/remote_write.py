"""OTLP metrics as a Prometheus has them, sent to a real one by remote write, with native histograms and exemplars.

A Prometheus of Debian takes no OTLP yet. What a newer one makes of it is here: names by `latencyprobe.rules.promql`,
`job` and `instance` of the resource's service, `target_info` with the rest of the resource, none of it on the series
unless promoted.
Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility"; Prometheus, "Remote-Write 1.0", prompb/types.proto.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import cramjam
import requests
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, Metric

from latencyprobe.rules import promql
from tests.support.otlp import metrics, values
from tests.support.prometheus import Server

OPTIONS = ("--web.enable-remote-write-receiver", "--enable-feature=native-histograms,exemplar-storage")
_AT_ONCE = 20_000  # samples in a request

_FIELDS = {  # prompb/types.proto and remote.proto, as far as it is needed: name, number, type
    "Label": [("name", 1, "string"), ("value", 2, "string")],
    "Sample": [("value", 1, "double"), ("timestamp", 2, "int64")],
    "Exemplar": [("labels", 1, "*Label"), ("value", 2, "double"), ("timestamp", 3, "int64")],
    "BucketSpan": [("offset", 1, "sint32"), ("length", 2, "uint32")],
    "Histogram": [
        ("count_int", 1, "uint64"),
        ("sum", 3, "double"),
        ("schema", 4, "sint32"),
        ("zero_threshold", 5, "double"),
        ("zero_count_int", 6, "uint64"),
        ("positive_spans", 11, "*BucketSpan"),
        ("positive_deltas", 12, "*sint64"),
        ("timestamp", 15, "int64"),
    ],
    "TimeSeries": [
        ("labels", 1, "*Label"),
        ("samples", 2, "*Sample"),
        ("exemplars", 3, "*Exemplar"),
        ("histograms", 4, "*Histogram"),
    ],
    "WriteRequest": [("timeseries", 1, "*TimeSeries")],
}


class Sampled(NamedTuple):
    """One sample: a number, or a point of an exponential histogram."""

    labels: Mapping[str, str]
    at_ms: int
    value: float | ExponentialHistogramDataPoint


def translated(
    bodies: Iterable[bytes], *, promoted: Collection[str] = (), external: Mapping[str, str] | None = None
) -> Iterator[Sampled]:
    """The samples of OTLP requests. `promoted`: attributes of resources that become labels of all series; `external`:
    labels that all get."""
    for body in bodies:
        told = set()
        for resource, metric in metrics([body]):
            labels = _of_resource(resource, promoted) | dict(external or {})
            for point in _points(metric):
                at_ms = point.time_unix_nano // 10**6
                of_point = {promql.label(key): str(value) for key, value in values(point.attributes).items()}
                name = promql.series(metric.name, metric.unit, _kind(metric))
                value = point if isinstance(point, ExponentialHistogramDataPoint) else _number(point)
                yield Sampled({"__name__": name, **labels, **of_point}, at_ms, value)
                if tuple(labels.items()) not in told:
                    told.add(tuple(labels.items()))
                    info = {promql.label(key): str(value) for key, value in resource.items() if not _identifies(key)}
                    yield Sampled({"__name__": "target_info", **labels, **info}, at_ms, 1)


def write(server: Server, samples: Iterable[Sampled]) -> None:
    """Send samples, those of each series in the order of time."""
    batch: list[Sampled] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) >= _AT_ONCE:
            _send(server, batch)
            batch = []
    _send(server, batch)


def _send(server: Server, samples: Iterable[Sampled]) -> None:
    request, exemplars = _WRITE_REQUEST(), _WRITE_REQUEST()
    series: dict[tuple[tuple[str, str], ...], Any] = {}
    for sample in samples:
        key = tuple(sorted((name, value) for name, value in sample.labels.items() if value))
        if key not in series:
            series[key] = _add(request, key)
        if isinstance(sample.value, ExponentialHistogramDataPoint):
            _histogram(series[key].histograms.add(timestamp=sample.at_ms), sample.value)
            if sample.value.exemplars:
                _exemplars(_add(exemplars, key).exemplars, sample.value)
        else:
            series[key].samples.add(value=sample.value, timestamp=sample.at_ms)
    for one in (request, exemplars):  # Prometheus 2.42 takes exemplars only of a series that it has
        _post(server, one.SerializeToString())


def _add(request: Any, labels: Iterable[tuple[str, str]]) -> Any:
    series = request.timeseries.add()
    for name, value in labels:
        series.labels.add(name=name, value=value)
    return series


def _post(server: Server, request: bytes) -> None:
    answer = requests.post(
        f"{server.url}/api/v1/write",
        data=bytes(cramjam.snappy.compress_raw(request)),
        headers={"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"},
        timeout=60,
    )
    assert answer.ok, answer.text[:2000]


def _histogram(into: Any, point: ExponentialHistogramDataPoint) -> None:
    """A native histogram: its bucket `i` ends where OTLP's `i - 1` does."""
    into.count_int, into.sum, into.schema, into.zero_count_int = point.count, point.sum, point.scale, point.zero_count
    into.zero_threshold = point.zero_threshold or 1e-128
    counts = list(point.positive.bucket_counts)
    if counts:
        into.positive_spans.add(offset=point.positive.offset + 1, length=len(counts))
        into.positive_deltas.extend(now - before for before, now in pairwise([0, *counts]))


def _exemplars(into: Any, point: ExponentialHistogramDataPoint) -> None:
    """Exemplars, with the ids in the labels that Prometheus gives them."""
    for one in point.exemplars:
        exemplar = into.add(value=one.as_double, timestamp=one.time_unix_nano // 10**6)
        exemplar.labels.add(name="span_id", value=one.span_id.hex())
        exemplar.labels.add(name="trace_id", value=one.trace_id.hex())


def _of_resource(resource: Mapping[str, Any], promoted: Collection[str]) -> dict[str, str]:
    service = [str(resource[name]) for name in ("service.namespace", "service.name") if resource.get(name)]
    own = {"job": "/".join(service), "instance": str(resource.get("service.instance.id", ""))}
    return own | {promql.label(name): str(resource[name]) for name in promoted if name in resource}


def _identifies(attribute: str) -> bool:
    return attribute in {"service.name", "service.namespace", "service.instance.id"}


def _kind(metric: Metric) -> str:
    return {"sum": "counter", "gauge": "gauge", "exponential_histogram": "histogram"}[metric.WhichOneof("data")]


def _points(metric: Metric) -> Iterable[Any]:
    found: Iterable[Any] = getattr(metric, metric.WhichOneof("data")).data_points
    return found


def _number(point: Any) -> float:
    return float(getattr(point, point.WhichOneof("value")))


def _write_request() -> Any:
    """The class of `_FIELDS`' WriteRequest."""
    file = descriptor_pb2.FileDescriptorProto(name="latencyprobe/tests/prompb.proto", package="prompb", syntax="proto3")
    field_types = descriptor_pb2.FieldDescriptorProto
    for message, fields in _FIELDS.items():
        into = file.message_type.add(name=message)
        for name, number, kind in fields:
            single = kind.lstrip("*")
            repeated = field_types.LABEL_REPEATED if single != kind else field_types.LABEL_OPTIONAL
            field = into.field.add(name=name, number=number, label=repeated)
            if single in _FIELDS:
                field.type, field.type_name = field_types.TYPE_MESSAGE, f".prompb.{single}"
            else:
                field.type = getattr(field_types, f"TYPE_{single.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prompb.WriteRequest"))


_WRITE_REQUEST = _write_request()
