import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.compare import added, median, paired, ratio_of_added

rng = np.random.default_rng(7)
DRIFT = np.linspace(1, 2, 40)  # the host becomes twice as slow while the rounds run


def noisy(level: float) -> np.ndarray:
    return level * DRIFT * rng.normal(1, 0.01, len(DRIFT))


def test_drift_of_the_host_cancels_out_of_paired_ratios():
    found = paired(noisy(1100), noisy(1000))
    assert found.low < 1.1 < found.high
    assert found.high - found.low < 0.02


def test_equal_variants_have_one_in_their_interval():
    found = paired(noisy(1000), noisy(1000))
    assert found.low < 1 < found.high


def test_ratio_of_what_two_variants_add():
    baseline = noisy(1000)
    found = ratio_of_added(baseline + 300 * DRIFT, baseline + 200 * DRIFT, baseline)
    assert found.median == pytest.approx(1.5)


@given(st.lists(st.floats(1, 1e6), min_size=3, max_size=30), st.floats(-100, 100))
def test_a_constant_addition_is_found_exactly(values, more):
    baseline = np.array(values)
    found = added(baseline + more, baseline)
    assert found.median == pytest.approx(more, abs=1e-6)
    assert found.low <= found.median <= found.high


def test_the_median_lies_in_its_interval():
    found = median(rng.normal(40, 1, 50))
    assert found.low < 40 < found.high
