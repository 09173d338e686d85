"""rules/promql.py: names as Prometheus gives them to OTLP, figures that lose nothing."""

from fractions import Fraction

import pytest

from latencyprobe import slo_events
from latencyprobe.rules import promql


def test_a_counter_has_no_suffix_of_a_unit_in_braces_and_ends_in_total() -> None:
    assert "latencyprobe_slo_events_total" == promql.counter(slo_events.SLO_EVENTS, slo_events.UNIT)


def test_a_unit_that_would_be_a_suffix_is_refused() -> None:
    with pytest.raises(ValueError, match="process\\.cpu\\.time"):
        promql.counter("process.cpu.time", "s")


def test_an_attribute_is_a_label_with_underscores() -> None:
    assert "latencyprobe_probe_namespace" == promql.label(slo_events.PROBE_NAMESPACE)


@pytest.mark.parametrize(
    ("seconds", "text"), [(300, "5m"), (1800, "30m"), (3600, "1h"), (86400, "1d"), (28 * 86400, "28d"), (90, "90s")]
)
def test_a_duration_is_whole_in_its_largest_unit(seconds: int, text: str) -> None:
    assert text == promql.duration(seconds)


@pytest.mark.parametrize("text", ["14.4", "0.001", "0.0000001", "6", "100", "43.2", "0.995", "0.25"])
def test_a_decimal_is_exact_and_has_no_exponent(text: str) -> None:
    assert text == promql.decimal(Fraction(text))


def test_a_selector_has_all_its_labels() -> None:
    assert 'x_total{a="b",c="d"}' == promql.selector("x_total", {"a": "b", "c": "d"})
