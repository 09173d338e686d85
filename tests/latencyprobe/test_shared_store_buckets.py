"""Buckets of Prometheus and VictoriaMetrics are those of a row, or none."""

import math

import pytest

from latencyprobe.shared_store.answers import Bucket, Series
from latencyprobe.shared_store.buckets import histogram, of_range
from latencyprobe.sli import HISTOGRAM_INDEXES


@pytest.mark.parametrize("index", [*HISTOGRAM_INDEXES[::37], HISTOGRAM_INDEXES[-1]])
def test_a_bucket_keeps_its_index_on_both_ways(index: int) -> None:
    lower, upper = 2 ** (index / 32), 2 ** ((index + 1) / 32)
    assert {index: 3} == histogram([Bucket(lower, upper, 3)])
    told = Series({"vmrange": f"{lower:.3e}...{upper:.3e}"}, [(0, 1.0), (60, 2.0)], [])
    assert {index: 3} == histogram(of_range(told))


def test_what_is_beyond_the_first_and_the_last_bucket_is_in_them() -> None:
    far = [Bucket(2**-40, 2**-40 * 1.02, 1), Bucket(2**20, 2**20 * 1.02, 2)]
    assert {HISTOGRAM_INDEXES[0]: 1, HISTOGRAM_INDEXES[-1]: 2} == histogram(far)


@pytest.mark.parametrize("bucket", [Bucket(0.005, 0.01, 1), Bucket(0.01, math.inf, 1), Bucket(-0.02, -0.01, 1)])
def test_wider_ones_give_no_quantiles(bucket: Bucket) -> None:
    assert histogram([bucket]) is None


def test_empty_ones_and_zero_are_left_out() -> None:
    assert {} == histogram([Bucket(-1e-9, 1e-9, 0), Bucket(-1e-9, 1e-9, 5), Bucket(0.005, 0.01, 0)])


@pytest.mark.parametrize("labels", [{}, {"vmrange": "a...b"}, {"vmrange": "1"}, {"le": "0.5"}])
def test_a_series_of_another_kind_has_no_range(labels: dict[str, str]) -> None:
    assert [] == of_range(Series(labels, [(0, 1.0)], []))
