"""The agents' priority class where a cluster lets nobody have it without a quota, as GKE does.

Source: Kubernetes, "Resource Quotas", "Limit Priority Class consumption by default".
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.api_server import ApiServer, api_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

Render = Callable[..., Any]
CLASSES = ["system-node-critical", "system-cluster-critical"]
LIMITED = {"scopeName": "PriorityClass", "operator": "In", "values": CLASSES}
ADMISSION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [{"resource": "pods", "matchScopes": [LIMITED]}],
            },
        }
    ],
}


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server that lets nobody have the classes of the system unasked."""
    (tmp_path / "admission.yaml").write_text(yaml.safe_dump(ADMISSION))
    with api_server(tmp_path, f"--admission-control-config-file={tmp_path}/admission.yaml") as it:
        yield it


@pytest.mark.timeout(900)
def test_agents_are_admitted_where_their_class_is_limited(strict: ApiServer, manifests: Any) -> None:
    def create() -> str:
        pod = {"metadata": {"generateName": "agent-"}, "spec": manifests.one("DaemonSet")["spec"]["template"]["spec"]}
        status, answer = strict.call("POST", "/api/v1/namespaces/lp-agents/pods", pod)
        return "" if status == 201 else str(answer["message"])

    strict.create("/api/v1/namespaces", manifests.one("Namespace"))
    wait_until(lambda: "insufficient quota to match these scopes" in create(), "the class is refused", 30)
    strict.create("/api/v1/namespaces/lp-agents/resourcequotas", manifests.one("ResourceQuota"))

    wait_until(lambda: create() == "", "the agent is admitted", 60)


@pytest.mark.parametrize("name", CLASSES)
def test_the_quota_is_of_the_agents_class(render: Render, name: str) -> None:
    manifests = render(agent={"priorityClassName": name})
    quota = manifests.one("ResourceQuota")

    assert quota["metadata"]["namespace"] == manifests.one("DaemonSet")["metadata"]["namespace"]
    assert quota["spec"]["scopeSelector"]["matchExpressions"] == [LIMITED | {"values": [name]}]


@pytest.mark.parametrize("name", ["", "mine", None])
def test_another_class_needs_none(render: Render, name: str | None) -> None:
    assert [one for one in render(agent={"priorityClassName": name}) if one["kind"] == "ResourceQuota"] == []
