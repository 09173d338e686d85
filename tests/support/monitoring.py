"""The resources of the Prometheus Operator, as its Go module defines them."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.api_server import bench

MODULE = "github.com/prometheus-operator/prometheus-operator@v0.85.0"


def definition(plural: str) -> dict[str, Any]:
    """Return a kind's CustomResourceDefinition. `plural`: `prometheusrules`, for example."""
    folder = Path(bench("module", MODULE)) / "example/prometheus-operator-crd"
    found: dict[str, Any] = yaml.safe_load((folder / f"monitoring.coreos.com_{plural}.yaml").read_text())
    return found
