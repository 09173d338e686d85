"""Reports of openreports.io: asked for alone, with the rights that they need, and held to the operator's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from latencyprobe_operator.config import Config

pytestmark = pytest.mark.cluster

Render = Callable[..., Any]
GOLDEN = Path(__file__).parents[1] / "data/operator_rbac.yaml"


def mirrors(manifests: Any) -> bool:
    """Whether the operator is told to, as it reads its environment."""
    (container,) = manifests.one("Deployment")["spec"]["template"]["spec"]["containers"]
    return Config.from_environment({one["name"]: one["value"] for one in container["env"]}).open_reports


def test_reports_are_written_with_the_rights_of_the_golden_list_and_the_same_policy(
    render: Render, manifests: Any
) -> None:
    asked = render(slo={"openReports": {"enabled": True}})
    golden = yaml.safe_load(GOLDEN.read_text())
    held = {
        resource
        for one in asked
        if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"].endswith("-own-objects")
        for rule in one["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }

    assert (mirrors(manifests), mirrors(asked)) == (False, True)
    assert asked.one("ClusterRole", "operator")["rules"] == golden["clusterRules"] + golden["openReportClusterRules"]
    assert held == {"reports"}
