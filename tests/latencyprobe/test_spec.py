"""spec.py: what the fields of a LatencyProbe mean."""

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe import spec


@given(st.integers(1, 999_999_999), st.sampled_from(["ns", "us", "ms", "s", "m"]))
def test_duration_is_its_number_of_units_up_to_an_hour(value: int, unit: str) -> None:
    unit_ns = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}[unit]
    if value * unit_ns > 3600 * 10**9:
        with pytest.raises(ValueError, match="at most 1 h"):
            spec.duration_ns(f"{value}{unit}")
    else:
        assert value * unit_ns == spec.duration_ns(f"{value}{unit}")


@pytest.mark.parametrize("text", ["0s", "01s", "-1s", "1.5ms", "1h", "1", "ms", "25ms\n", "٢٥ms", "1234567890ns"])
def test_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        spec.duration_ns(text)


def test_goal_is_exact() -> None:
    assert Fraction(999, 1000) == spec.goal_fraction("99.9")
    assert Fraction(9_999_999, 10_000_000) == spec.goal_fraction("99.99999")


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"app": "cart"}}, {"app": "cart", "x": "y"}, True),
        ({"matchLabels": {"app": "cart"}}, {"app": "db"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, {"app": "b"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {"app": "a"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": ""}, False),
    ],
)
def test_selector_selects_as_kubernetes_does(selector: object, labels: dict[str, str], selected: bool) -> None:
    assert selected is spec.selector_matches(msgspec.convert(selector, spec.LabelSelector), labels)
