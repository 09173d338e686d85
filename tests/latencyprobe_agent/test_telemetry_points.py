from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from latencyprobe_agent.telemetry.points import Histogram, MetricRequests, Point
from latencyprobe_agent.vocabulary import conventions as names
from tests.support import otlp

RESOURCES = {1: {"service.name": "one"}, 2: {"service.name": "two"}}
LABELS = (("latencyprobe.target", "cart"),)


def metrics(encoder: MetricRequests, *points: Point, now: int = 2000) -> dict[tuple[str, str], pb.Metric]:
    """Return what the official parser finds, by service and metric name."""
    bodies = [request.body for request in encoder.encode(points, RESOURCES, now)]
    return {(resource["service.name"], metric.name): metric for resource, metric in otlp.metrics(bodies)}


def histogram(counts: list[int], zero: int = 0, sum_s: float = 0.0) -> Histogram:
    return Histogram(np.array(counts, np.int64), -672, 5, zero, sum_s)


def test_a_counter_counts_from_the_start() -> None:
    point = Point(1, names.EXCHANGES, (*LABELS, ("latencyprobe.class", "pingpong")), 42)
    metric = metrics(MetricRequests(1000), point)["one", "latencyprobe.exchanges"]
    (number,) = metric.sum.data_points
    assert metric.unit == "{exchange}"
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert (number.as_int, number.start_time_unix_nano, number.time_unix_nano) == (42, 1000, 2000)
    assert [(a.key, a.value.string_value) for a in number.attributes] == [
        ("latencyprobe.target", "cart"),
        ("latencyprobe.class", "pingpong"),
    ]


def test_a_histogram_is_cut_to_its_filled_buckets() -> None:
    point = Point(1, names.SERVER_DURATION, LABELS, histogram([0, 0, 3, 0, 4, 0], zero=2, sum_s=1.5))
    metric = metrics(MetricRequests(1000), point)["one", "latencyprobe.server.duration"]
    (data,) = metric.exponential_histogram.data_points
    assert (data.scale, data.count, data.zero_count, data.sum) == (5, 9, 2, 1.5)
    assert (data.positive.offset, list(data.positive.bucket_counts)) == (-670, [3, 0, 4])


def test_an_empty_histogram_has_no_buckets() -> None:
    point = Point(1, names.SERVER_DURATION, LABELS, histogram([0, 0]))
    metric = metrics(MetricRequests(1000), point)["one", "latencyprobe.server.duration"]
    assert metric.exponential_histogram.data_points[0].count == 0


def test_each_container_is_a_resource_of_its_own() -> None:
    found = metrics(MetricRequests(0), *(Point(i, names.EXCHANGES, LABELS, i) for i in (1, 2)))
    assert [("one", "latencyprobe.exchanges"), ("two", "latencyprobe.exchanges")] == list(found)


def test_delta_temporality_sends_differences_from_the_last_export() -> None:
    encoder = MetricRequests(1000, delta=True)

    def export(count: int, buckets: list[int], now: int) -> tuple[Any, Any]:
        points = Point(1, names.EXCHANGES, LABELS, count), Point(1, names.SERVER_DURATION, LABELS, histogram(buckets))
        found = metrics(encoder, *points, now=now)
        return found["one", "latencyprobe.exchanges"], found["one", "latencyprobe.server.duration"]

    export(10, [5, 5], 2000)
    counter, durations = export(13, [5, 8], 3000)
    assert counter.sum.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_DELTA
    assert (counter.sum.data_points[0].as_int, counter.sum.data_points[0].start_time_unix_nano) == (3, 2000)
    (data,) = durations.exponential_histogram.data_points
    assert (data.count, data.positive.offset, list(data.positive.bucket_counts)) == (3, -671, [3])


@pytest.mark.long
def test_a_container_with_many_targets_is_cut_in_requests_that_receivers_take() -> None:
    """As the client of all that a cluster has: 4 MiB is what receivers take by default."""
    durations = (names.CLIENT_DURATION, names.STAGE_DURATION, names.PEER_DURATION, names.TCP_RTT)
    points = [
        Point(owner, metric, (("latencyprobe.target", f"target-{target}"),), histogram([5] * 500))
        for owner in RESOURCES
        for metric in durations
        for target in range(2000)
    ]
    requests = list(MetricRequests(0).encode(points, RESOURCES, 2000))
    assert len(requests) < sum(len(body) for body, *_ in requests) / (2 << 20), "and in no more than are needed"
    assert max(len(body) for body, *_ in requests) < 4 << 20
    assert len(points) == sum(count for _, count, _ in requests)
    found = otlp.points(body for body, *_ in requests)
    assert {(dict(at.resource)["service.name"], at.metric, at.labels) for at in found} == {
        (RESOURCES[point.observed]["service.name"], point.metric.name, point.labels) for point in points
    }


@pytest.mark.long
def test_a_metric_of_one_container_may_be_more_than_a_request() -> None:
    """As of one with many targets, each with many peers, whose names other tenants choose."""
    points = [
        Point(
            1,
            names.PEER_DURATION,
            (*LABELS, (names.ROLE, "server"), (names.SERVICE_PEER_NAME, f"{number}-{'x' * 240}")),
            histogram([200] * 100),
        )
        for number in range(12_000)
    ]
    requests = list(MetricRequests(0).encode(points, RESOURCES, 2000))
    assert max(len(body) for body, *_ in requests) < 4 << 20
    assert [len(points), len(points)] == [
        sum(count for _, count, _ in requests),
        len(otlp.points(body for body, *_ in requests)),
    ]
    assert all(len(otlp.points([body])) == count for body, count, _ in requests)
    assert [len(list(otlp.metrics([body]))) for body, *_ in requests] == [1] * len(requests), "once in each"


def test_who_has_many_points_has_requests_of_his_own() -> None:
    """So that an outbox without room drops his, and not what few points of others went with them."""

    def of(namespace: str, targets: int) -> list[Point]:
        where = ((names.PROBE, "p"), (names.PROBE_NAMESPACE, namespace))
        return [Point(1, names.EXCHANGES, (*where, (names.TARGET, f"t{i}")), 5) for i in range(targets)]

    points = [Point(2, names.MEMORY, (), 7), *of("shop", 3), *of("evil", 5000), *of("bank", 2)]
    requests = list(MetricRequests(0).encode(points, RESOURCES, 2000))
    assert {("", "shop", "bank"): 6, ("evil",): 5000} == {request.whose: request.points for request in requests}
    assert len(points) - 1 == len(otlp.points(request.body for request in requests)), "a gauge is none"


def test_of_owners_that_are_gone_nothing_is_remembered() -> None:
    """Containers come and go for months."""
    encoder = MetricRequests(0, delta=True)
    for owner in range(1, 200):
        encoder.forget({owner - 1})
        points = [Point(owner, names.EXCHANGES, LABELS, 5), Point(owner, names.SERVER_DURATION, LABELS, histogram([5]))]
        list(encoder.encode(points, {owner: {}}, owner))
    assert 2 == len(encoder._before)


def test_what_begins_anew_is_sent_whole_and_never_as_a_loss() -> None:
    """As of a process that has the number of one that ended."""
    encoder = MetricRequests(0, delta=True)

    def export(count: int, buckets: list[int], zero: int = 0) -> tuple[int, int]:
        durations = Point(1, names.SERVER_DURATION, LABELS, histogram(buckets, zero))
        found = metrics(encoder, Point(1, names.EXCHANGES, LABELS, count), durations)
        (number,) = found["one", "latencyprobe.exchanges"].sum.data_points
        return number.as_int, found["one", names.SERVER_DURATION.name].exponential_histogram.data_points[0].count

    assert (10, 10) == export(10, [5, 5])
    assert (3, 6) == export(3, [6, 0])
    assert (1, 2) == export(4, [6, 1], zero=1)
    assert (0, 7) == export(4, [6, 1], zero=0)


@pytest.mark.parametrize(("delta", "after"), [(False, [(2, 1500), (5, 1500)]), (True, [(2, 1500), (3, 2500)])])
def test_a_counter_that_starts_again_says_when(delta: bool, after: list[tuple[int, int]]) -> None:
    encoder = MetricRequests(1000, delta=delta)

    def export(count: int, start: int, now: int) -> tuple[int, int]:
        point = Point(1, names.SLO_EVENTS, LABELS, count, start)
        (number,) = metrics(encoder, point, now=now)["one", names.SLO_EVENTS.name].sum.data_points
        return number.as_int, number.start_time_unix_nano

    assert export(10, 0, 1400) == (10, 1000)
    assert [export(2, 1500, 2500), export(5, 1500, 3000)] == after


def test_a_gauge_is_never_a_difference() -> None:
    encoder = MetricRequests(1000, delta=True)
    metrics(encoder, Point(1, names.MEMORY, (), 50))
    assert metrics(encoder, Point(1, names.MEMORY, (), 60))["one", names.MEMORY.name].gauge.data_points[0].as_int == 60


@pytest.mark.long
def test_requests_stay_below_what_receivers_accept() -> None:
    wide = histogram([1 << 40] * 900)
    resources = {i: {"service.name": str(i)} for i in range(2000)}
    points = (Point(i, names.SERVER_DURATION, LABELS, wide) for i in resources)
    parts = list(MetricRequests(0).encode(points, resources, 1))
    assert sum(count for _, count, _ in parts) == 2000
    assert max(len(body) for body, *_ in parts) < 4 << 20


def test_units_and_kinds_are_what_opentelemetry_expects() -> None:
    for metric in names.METRICS:
        assert metric.unit in {"s", "By", "1"} or metric.unit.startswith("{")
        assert metric.description.endswith(".")
    assert len(names.METRICS) == len({metric.name for metric in names.METRICS}) > 20


@pytest.mark.parametrize("name", [n for n in vars(names) if n.isupper() and isinstance(getattr(names, n), str)])
def test_no_name_claims_a_protocol_that_nobody_parsed(name: str) -> None:
    assert not getattr(names, name).startswith(("rpc.", "http."))
