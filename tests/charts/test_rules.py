"""PrometheusRules that the operator writes: asked for alone, with the rights that it needs, and held to its own."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from latencyprobe_operator.cluster.owners import MANAGED_BY
from latencyprobe_operator.config import Config
from tests.charts.schemas import Conform
from tests.support import definitions
from tests.support.api_server import ApiServer, api_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

Render = Callable[..., Any]
GOLDEN = Path(__file__).parents[1] / "data/operator_rbac.yaml"
OPERATOR = "system:serviceaccount:watch:lp-latencyprobe-operator"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmission"
RULES = "/apis/monitoring.coreos.com/v1/namespaces/default/prometheusrules"


def asked(render: Render, **labels: str) -> Any:
    return render(slo={"prometheusRules": {"enabled": True, "labels": labels}})


def told(manifests: Any) -> dict[str, str] | None:
    """What the operator makes of its environment."""
    (container,) = manifests.one("Deployment")["spec"]["template"]["spec"]["containers"]
    return Config.from_environment({one["name"]: one["value"] for one in container["env"]}).rule_labels


def own_rules(manifests: Any) -> list[dict[str, Any]]:
    return [one for one in manifests if one["metadata"]["name"].endswith("-own-objects")]


def test_without_being_asked_the_operator_writes_no_rules_and_has_no_right_to(manifests: Any) -> None:
    assert told(manifests) is None
    assert own_rules(manifests) == []
    assert "monitoring.coreos.com" not in str(manifests.one("ClusterRole", "operator")["rules"])


def test_operator_is_told_the_labels_by_which_prometheus_selects(render: Render, conform: Conform) -> None:
    manifests = asked(render, release="kube-prometheus-stack", quoted='a "b"')

    assert told(manifests) == {"release": "kube-prometheus-stack", "quoted": 'a "b"'}
    assert told(asked(render)) == {}
    conform(yaml.safe_dump_all(manifests))


def test_rights_on_rules_are_the_golden_list(render: Render) -> None:
    golden = yaml.safe_load(GOLDEN.read_text())

    assert asked(render).one("ClusterRole", "operator")["rules"] == golden["clusterRules"] + golden["ruleClusterRules"]


@pytest.fixture(scope="module")
def server(render: Render, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server with PrometheusRules and the chart's policy about them."""
    with api_server(tmp_path_factory.mktemp("api")) as it:
        it.define(definitions.monitoring("prometheusrules"))
        for one in own_rules(asked(render)):
            kind = "policies" if one["kind"].endswith("Policy") else "policybindings"
            it.create(POLICIES + kind, one)
        wait_until(lambda: as_operator(it, "POST", f"{RULES}?dryRun=All", rule("any")) == 422, "it holds", 60)
        yield it


def rule(name: str, **labels: str) -> dict[str, Any]:
    kind = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
    return kind | {"metadata": {"name": name, "labels": labels}, "spec": {"groups": []}}


def as_operator(server: ApiServer, method: str, path: str, document: object = None) -> int:
    """HTTP status of a request in the operator's name; RBAC grants everything, so that only the policy can refuse."""
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    headers |= {"Impersonate-User": OPERATOR, "Impersonate-Group": "system:masters"}
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    body = None if document is None else json.dumps(document).encode()
    return server.pool.request(method, server.url + path, body=body, headers=headers, retries=False).status


def test_operator_may_touch_no_rule_but_those_that_it_made(server: ApiServer) -> None:
    (label,) = MANAGED_BY
    for name, labels in (("theirs", {}), ("helms", {label: "Helm"})):
        server.create(RULES, rule(name, **labels))
        for changed in ({"severity": "none"}, MANAGED_BY):
            assert as_operator(server, "PATCH", f"{RULES}/{name}", {"metadata": {"labels": changed}}) == 422
        assert as_operator(server, "DELETE", f"{RULES}/{name}") == 422
        assert as_operator(server, "POST", RULES, rule(f"{name}-2", **labels)) == 422

    assert as_operator(server, "POST", RULES, rule("ours", **MANAGED_BY)) == 201
    assert as_operator(server, "PATCH", f"{RULES}/ours", {"spec": {"groups": [{"name": "g"}]}}) == 200
    assert as_operator(server, "PATCH", f"{RULES}/ours", {"metadata": {"labels": {label: None}}}) == 422
    assert as_operator(server, "DELETE", f"{RULES}/ours") == 200
    assert server.answer("DELETE", f"{RULES}/theirs")[0] == 200, "others may do what they may"
