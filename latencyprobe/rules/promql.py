"""PromQL: names as a Prometheus server gives them to what comes by OTLP, and figures as it reads them. Pure.

Source of the names: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", as Prometheus follows it by default
(`translation_strategy: UnderscoreEscapingWithSuffixes`):
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

_UNITS_S = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def label(attribute: str) -> str:
    """Return the label that an attribute of points becomes: `latencyprobe_probe` of `latencyprobe.probe`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


def counter(metric: str, unit: str) -> str:
    """Return the name of the series that a counter becomes. `unit` in UCUM.

    What stands in braces is an annotation and becomes no suffix. Raises ValueError for a unit that would become one:
    no metric that rules ask for has one.
    """
    if not re.fullmatch(r"\{.*\}", unit):
        raise ValueError(f"{metric}: the suffix of unit {unit!r} is not known")
    return f"{label(metric)}_total"


def selector(series: str, matching: Mapping[str, str]) -> str:
    """Return a selector of the series whose labels equal these. Values are names of Kubernetes: nothing to escape."""
    matchers = ",".join(f'{name}="{value}"' for name, value in matching.items())
    return f"{series}{{{matchers}}}"


def duration(seconds: int) -> str:
    """Return a whole number of seconds in the largest unit that keeps it whole: `5m`, `28d`."""
    return next(f"{seconds // unit_s}{unit}" for unit, unit_s in _UNITS_S if seconds % unit_s == 0)


def decimal(value: Fraction) -> str:
    """Return a fraction in full, as `0.001`. Those of goals and burn-rate factors have few digits."""
    return f"{(Decimal(value.numerator) / Decimal(value.denominator)).normalize():f}"
