"""The schemas that other tests rest on: they take what Kubernetes takes, and refuse what it refuses."""

from typing import Any

import pytest
import yaml

from tests.charts.schemas import Conform

pytestmark = pytest.mark.cluster

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
MONITOR = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "m"}}


@pytest.mark.parametrize(
    ("one", "complaint"),
    [
        (SERVICE | {"spec": {"ports": [{"port": 1, "targetPort": "http"}]}}, ""),
        (SERVICE | {"spec": {"ports": [{"port": "one"}]}}, "got string, want integer"),
        (SERVICE | {"spec": {"port": []}}, "additional properties 'port' not allowed"),
        (MONITOR | {"spec": {"selector": {}, "endpoints": [{"port": "http", "interval": "30s"}]}}, ""),
        (MONITOR | {"spec": {"selector": {}, "endpoints": [{"port": "http", "interval": "often"}]}}, "interval"),
        (MONITOR | {"spec": {"selector": {}, "endpoints": [{"ports": "http"}]}}, "'ports' not allowed"),
        ({"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "n"}}, "could not find schema"),
    ],
)
def test_fields_and_their_types_are_held(conform: Conform, one: dict[str, Any], complaint: str) -> None:
    if complaint:
        with pytest.raises(AssertionError, match=complaint):
            conform(yaml.safe_dump(one))
    else:
        conform(yaml.safe_dump(one))
