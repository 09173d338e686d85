"""report/units.py: figures as text."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.report import units


@pytest.mark.parametrize(
    ("value_ns", "digits", "text"),
    [
        (0, 3, "0s"),
        (850, 3, "850ns"),
        (1_000, 3, "1us"),
        (1_234, 3, "1.23us"),
        (999_600, 3, "1ms"),
        (40_213_512, 3, "40.2ms"),
        (40_213_512, 6, "40.2135ms"),
        (25_000_000, 9, "25ms"),
        (300_000_000_000, 3, "300s"),
        (3_600_000_000_000, 9, "3600s"),
    ],
)
def test_duration_has_its_largest_unit(value_ns: int, digits: int, text: str) -> None:
    assert text == units.duration(value_ns, digits)


@given(st.integers(0, 3_600_000_000_000), st.integers(3, 9))
def test_duration_reads_back_within_its_digits(value_ns: int, digits: int) -> None:
    assert units.duration_ns(units.duration(value_ns, digits)) == pytest.approx(value_ns, rel=0.51 * 10 ** (1 - digits))


def test_number_agrees_with_its_noun() -> None:
    assert ["0 turns", "1 turn", "2,310 turns"] == [units.number(n, "turn") for n in (0, 1, 2310)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (65, "1m5s"), (3600, "1h"), (90061, "1d1h"), (86400 * 3, "3d"), (7380, "2h3m")]
)
def test_time_span_has_two_units(seconds: int, text: str) -> None:
    assert text == units.time_span(seconds)


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (Fraction(1), 1, "100"),
        (Fraction(999_999, 1_000_000), 1, "99.9"),
        (Fraction(9_999_999, 10_000_000), 5, "99.99999"),
        (Fraction(-29), 1, "-2900"),
        (Fraction(-1, 1000), 1, "-0.1"),
        (Fraction(1, 3), 5, "33.33333"),
        (Fraction(0), 1, "0"),
    ],
)
def test_percent_never_rounds_up(share: Fraction, decimals: int, text: str) -> None:
    assert text == units.percent(share, decimals)


@given(st.fractions(-100, 1), st.integers(1, 5))
def test_percent_reads_back_rounded_down(share: Fraction, decimals: int) -> None:
    below = 100 * share - Fraction(units.percent(share, decimals))
    assert 0 <= below < Fraction(1, 10**decimals)


def test_rate_has_two_decimals() -> None:
    assert ("14.4", "0", "33.33", None) == tuple(
        map(units.rate, (Fraction("14.4"), Fraction(0), Fraction(100, 3), None))
    )


def test_time_is_utc() -> None:
    assert "2026-01-02T03:04:05Z" == units.iso(1_767_323_045 * 10**9)
    assert "2026-01-02T03:04:05.678Z" == units.iso(1_767_323_045_678_901_234)


@pytest.mark.parametrize("seconds", [60, 900, 7200, 21_600, 86_400, 90_000, 28 * 86_400])
def test_time_span_reads_back(seconds: int) -> None:
    assert seconds == units.span_s(units.time_span(seconds))
