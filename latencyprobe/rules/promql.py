"""PromQL: names as a Prometheus server gives them to what comes by OTLP, and figures as it reads them. Pure.

Source of the names: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", as Prometheus follows it by default
(`translation_strategy: UnderscoreEscapingWithSuffixes`):
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

_SUFFIXES = {"s": "_seconds", "By": "_bytes"}
_UNITS_S = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def label(attribute: str) -> str:
    """Return the label that an attribute of points becomes: `latencyprobe_probe` of `latencyprobe.probe`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


def series(metric: str, unit: str, kind: str) -> str:
    """Return the name of the series that a metric becomes. `unit` in UCUM; `kind`: `counter`, `gauge` or `histogram`.

    What stands in braces is an annotation and becomes no suffix. Raises ValueError for a unit whose suffix is not known
    here: no metric of ours has one.
    """
    if kind == "gauge" and unit == "1":
        suffix = "_ratio"
    elif re.fullmatch(r"\{.*\}", unit):
        suffix = ""
    elif unit in _SUFFIXES:
        suffix = _SUFFIXES[unit]
    else:
        raise ValueError(f"{metric}: the suffix of unit {unit!r} is not known")
    return label(metric).removesuffix(suffix) + suffix + ("_total" if kind == "counter" else "")


def selector(series: str, matching: Mapping[str, str]) -> str:
    """Return a selector of the series whose labels equal these."""
    matchers = ",".join(f'{name}="{_escaped(value)}"' for name, value in matching.items())
    return f"{series}{{{matchers}}}"


def _escaped(value: str) -> str:
    """Return a value as it stands between quotes. Names of Kubernetes have nothing to escape; others may."""
    return value.translate({ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"})


def duration(seconds: int) -> str:
    """Return a whole number of seconds in the largest unit that keeps it whole: `5m`, `28d`."""
    return next(f"{seconds // unit_s}{unit}" for unit, unit_s in _UNITS_S if seconds % unit_s == 0)


def decimal(value: Fraction) -> str:
    """Return a fraction in full, as `0.001`. Those of goals and burn-rate factors have few digits."""
    return f"{(Decimal(value.numerator) / Decimal(value.denominator)).normalize():f}"
