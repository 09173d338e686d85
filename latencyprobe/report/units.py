"""Figures as text: durations, shares, times. Pure.

No floats cross the Kubernetes API: docs/design/objectives.md, "Numbers".
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from latencyprobe.slo.histogram import quantiles_ns

FASTEST, P50, P90, P99, P999 = map(Fraction, ("0", "0.5", "0.9", "0.99", "0.999"))
NOTABLE = Decimal(1)  # percent: below it nobody has to read of it
WORTH_A_REMEDY = Decimal(10)  # percent, from here on
_SPAN_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_UNITS = (("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))


def duration(value_ns: int, digits: int = 3) -> str:
    """Return ns with `digits` significant digits in the largest unit below the value: `1.23ms`."""
    if value_ns == 0:
        return "0s"
    for unit, unit_ns in reversed(_UNITS):  # noqa: B007 - the last one, if none is below
        value = value_ns / unit_ns
        if round(value, digits - 1) >= 1:
            break
    decimals = max(0, digits - len(str(int(value)))) if unit_ns > 1 else 0
    text = f"{value:.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + unit


def quantiles(histogram: Mapping[int, int], *shares: Fraction, digits: int = 3) -> list[str]:
    """Return what each of these shares of the durations lies within, nothing of none."""
    return [duration(value_ns, digits) for value_ns in quantiles_ns(histogram, shares)]


def duration_ns(text: str) -> int:
    """Return the ns of what `duration` wrote."""
    number = text.rstrip("nums")
    return round(Decimal(number) * dict(_UNITS)[text[len(number) :]])


def time_span(seconds: int) -> str:
    """Return a whole number of seconds in its two largest units: `1h5m`, `90d`, `0s`."""
    parts: list[str] = []
    for unit, unit_s in _SPAN_S.items():
        if seconds >= unit_s and len(parts) < 2:
            parts.append(f"{seconds // unit_s}{unit}")
            seconds %= unit_s
    return "".join(parts) or "0s"


def span_s(text: str) -> int:
    """Return the seconds of what `time_span` wrote."""
    return sum(int(n) * _SPAN_S[unit] for n, unit in re.findall(r"(\d+)([dhms])", text))


def number(n: int, noun: str) -> str:
    """Return a count of things: `1 turn`, `40,000 turns`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def percent(share: Fraction, decimals: int) -> str:
    """Return a fraction of 1 in percent, rounded down: what is not whole never looks whole."""
    return percent_of(share.numerator, share.denominator, decimals)


def percent_of(part: int, whole: int, decimals: int) -> str:
    """Return the same of a part of a whole (> 0)."""
    value = 100 * 10**decimals * part // whole
    in_percent, rest = divmod(abs(value), 10**decimals)
    return f"{'-' if value < 0 else ''}{in_percent}.{rest:0{decimals}}".rstrip("0").rstrip(".")


def rate(value: Fraction | None) -> str | None:
    """Return a burn rate with two decimals."""
    return None if value is None else f"{float(value):.2f}".rstrip("0").rstrip(".")


def unix_ns(text: str) -> int:
    """Return the Unix time of what `iso` wrote, in ns."""
    return round(datetime.fromisoformat(text).timestamp() * 1e6) * 1000


def iso(unix_ns: int) -> str:
    """Return a Unix time in ISO 8601, UTC; with milliseconds unless it is a whole second."""
    moment = datetime.fromtimestamp(unix_ns // 10**6 / 1000, UTC)
    text = moment.isoformat(timespec="milliseconds" if unix_ns % 10**9 else "seconds")
    return text.replace("+00:00", "Z")
