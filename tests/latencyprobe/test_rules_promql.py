"""rules/promql.py: names as Prometheus gives them to OTLP, figures that lose nothing."""

from fractions import Fraction

import pytest

from latencyprobe import slo_events
from latencyprobe.rules import promql


def test_a_counter_has_no_suffix_of_a_unit_in_braces_and_ends_in_total() -> None:
    assert "latencyprobe_slo_events_total" == promql.series(slo_events.SLO_EVENTS, slo_events.UNIT, "counter")


@pytest.mark.parametrize(
    ("metric", "unit", "kind", "name"),
    [
        ("process.cpu.time", "s", "counter", "process_cpu_time_seconds_total"),
        ("process.memory.usage", "By", "gauge", "process_memory_usage_bytes"),
        ("latencyprobe.server.duration", "s", "histogram", "latencyprobe_server_duration_seconds"),
        ("latencyprobe.slo.goal", "1", "gauge", "latencyprobe_slo_goal_ratio"),
        ("latencyprobe.agent.sli_rows.waiting", "{row}", "gauge", "latencyprobe_agent_sli_rows_waiting"),
    ],
)
def test_a_unit_is_a_suffix_in_words(metric: str, unit: str, kind: str, name: str) -> None:
    assert name == promql.series(metric, unit, kind)


def test_a_unit_whose_suffix_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="process\\.heat"):
        promql.series("process.heat", "Cel", "gauge")


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


def test_a_selector_escapes_what_would_end_a_value() -> None:
    assert r'x_total{a="\"} or up{b=\"\\\n"}' == promql.selector("x_total", {"a": '"} or up{b="\\\n'})


def test_a_selector_has_all_its_labels() -> None:
    assert 'x_total{a="b",c="d"}' == promql.selector("x_total", {"a": "b", "c": "d"})
