"""slo/histogram.py: quantiles of sparse exponential histograms."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.slo.histogram import quantile_ns, quantiles_ns


def bucket(duration_ns: int) -> int:
    return math.ceil(math.log2(duration_ns / 1e9) * 32) - 1


@given(st.lists(st.integers(1_000, 10**11), min_size=1, max_size=200), st.sampled_from(["0.5", "0.9", "0.99", "0.999"]))
def test_quantile_is_within_its_bucket_of_the_exact_one(durations_ns: list[int], q: str) -> None:
    exact = sorted(durations_ns)[math.ceil(Fraction(q) * len(durations_ns)) - 1]
    assert quantile_ns(Counter(map(bucket, durations_ns)), Fraction(q)) == pytest.approx(exact, rel=0.0111)


def test_nothing_has_no_quantile() -> None:
    assert quantile_ns({}, Fraction(1, 2)) is None
    assert [] == quantiles_ns({}, [Fraction(1, 2)])
    assert quantile_ns({3: 0}, Fraction(1, 2)) is None


def test_share_of_nothing_is_the_first_bucket_with_events() -> None:
    assert quantiles_ns({5: 1}, [Fraction(1)]) == quantiles_ns({9: 1, 1: 0, 5: 2}, [Fraction(0)])
