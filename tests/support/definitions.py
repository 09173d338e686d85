"""Kinds of others that we write, as their projects' Go modules define them."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.api_server import bench

PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
OPEN_REPORTS = "github.com/openreports/reports-api@v0.2.1"


def monitoring(plural: str) -> dict[str, Any]:
    """Return the definition of a kind of the Prometheus Operator. `plural`: `prometheusrules`, for example."""
    return _read(PROMETHEUS_OPERATOR, f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml")


def open_reports() -> dict[str, Any]:
    """Return the definition of a Report of openreports.io."""
    return _read(OPEN_REPORTS, "config/crd/openreports.io_reports.yaml")


def _read(module: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((Path(bench("module", module)) / file).read_text())
    return found
