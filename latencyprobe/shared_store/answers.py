"""What a Prometheus answers, as values: series with the points that it was asked for. Pure.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/ and "Native histograms" there.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_Sample = tuple[float, str]
_Bucket = tuple[int, str, str, str]  # which bounds belong to it, lower, upper, count


class _Histogram(msgspec.Struct):
    count: str
    buckets: list[_Bucket] = []


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: _Sample | None = None
    values: list[_Sample] = []
    histogram: tuple[float, _Histogram] | None = None
    histograms: list[tuple[float, _Histogram]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: list[_Series]


class Answer(msgspec.Struct, rename="camel"):
    """The body of an answer, of an error too. `is_partial`: VictoriaMetrics' word for data that was not reached."""

    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    is_partial: bool = False


class Bucket(NamedTuple):
    """A bucket of a native histogram: bounds in s, and how many events are in it."""

    lower: float
    upper: float
    events: float


class Series(NamedTuple):
    """One series: what it has at each moment (Unix s), numbers or buckets."""

    labels: dict[str, str]
    points: list[tuple[float, float]]
    buckets: list[Bucket]

    @property
    def total(self) -> float:
        """The sum of its points."""
        return math.fsum(value for _, value in self.points)


def series(answer: Answer) -> list[Series]:
    """Return the series of an answer; points that are no number are left out. Raises ValueError for what is none of
    these."""
    if answer.data is None or answer.data.result_type not in ("vector", "matrix"):
        raise ValueError("an answer without a vector")
    return [Series(one.metric, list(_points(one)), list(_buckets(one))) for one in answer.data.result]


def _points(one: _Series) -> Iterator[tuple[float, float]]:
    for at, text in [*([one.value] if one.value else []), *one.values]:
        if math.isfinite(value := float(text)):
            yield at, value


def _buckets(one: _Series) -> Iterator[Bucket]:
    for _, histogram in [*([one.histogram] if one.histogram else []), *one.histograms]:
        for _, lower, upper, count in histogram.buckets:
            if math.isfinite(number := float(count)):
                yield Bucket(float(lower), float(upper), number)
