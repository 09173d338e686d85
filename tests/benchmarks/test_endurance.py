import numpy as np
import pytest

from benchmarks.endurance import slope_per_hour


def test_growth_is_told_per_hour():
    at_s = np.arange(0.0, 600, 10)
    assert slope_per_hour(at_s, 60 + at_s / 3600) == pytest.approx(1)
