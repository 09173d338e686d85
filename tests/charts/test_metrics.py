"""How a Prometheus comes to the operator's /metrics: by a ServiceMonitor, let in, with a right to read."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.charts.schemas import Conform

pytestmark = pytest.mark.cluster

Render = Callable[..., Any]
PROMETHEUS = {"namespace": "monitoring", "serviceAccount": "prometheus-k8s"}


def monitored(render: Render, **values: Any) -> Any:
    return render(metrics={"serviceMonitor": {"enabled": True, **values}})


def endpoint(manifests: Any) -> dict[str, Any]:
    (one,) = manifests.one("ServiceMonitor")["spec"]["endpoints"]
    return dict(one)


def test_there_is_no_monitor_unless_asked_for(manifests: Any) -> None:
    assert [m for m in manifests if m["apiVersion"].startswith("monitoring.")] == []


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"interval": "", "prometheus": PROMETHEUS},
        {
            "additionalLabels": {"release": "stack"},
            "authorization": {"credentials": {"name": "reader", "key": "token"}},
            "relabelings": [{"targetLabel": "cluster", "replacement": "here"}],
            "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "process_.*"}],
        },
    ],
)
def test_the_prometheus_operator_takes_the_monitor(render: Render, conform: Conform, values: dict[str, Any]) -> None:
    conform(yaml.safe_dump_all(monitored(render, **values)))


def test_the_monitor_finds_the_port_that_serves_metrics(render: Render) -> None:
    manifests = monitored(render, additionalLabels={"release": "stack"})
    monitor, service = manifests.one("ServiceMonitor"), manifests.one("Service")

    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"], "it looks in its own namespace"
    assert monitor["metadata"]["labels"]["release"] == "stack"
    assert endpoint(manifests)["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["spec"]["jobLabel"] in service["metadata"]["labels"]


def test_the_operator_is_known_by_the_authority_and_the_name_of_its_certificate(render: Render) -> None:
    manifests = monitored(render)
    service = manifests.one("Service")["metadata"]

    assert endpoint(manifests)["scheme"] == "https"
    assert endpoint(manifests)["tlsConfig"] == {
        "serverName": f"{service['name']}.{service['namespace']}.svc",
        "ca": {"secret": {"name": "given-tls", "key": "ca.crt"}},
    }


def test_prometheus_says_who_it_is_by_its_own_token_or_by_another(render: Render) -> None:
    given = {"credentials": {"name": "reader", "key": "token"}}

    assert endpoint(monitored(render))["bearerTokenFile"].startswith("/var/run/secrets/kubernetes.io/serviceaccount/")
    assert endpoint(monitored(render, authorization=given)).items() >= {"authorization": given}.items()
    assert "bearerTokenFile" not in endpoint(monitored(render, authorization=given))


def test_prometheus_gets_the_right_to_read_metrics_and_no_other(render: Render) -> None:
    manifests = monitored(render, prometheus=PROMETHEUS)
    role = next(m for m in manifests if m["kind"] == "ClusterRole" and m["metadata"]["name"].endswith("-metrics"))
    binding = next(m for m in manifests if m["kind"].endswith("Binding") and m["metadata"]["name"].endswith("-metrics"))

    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus-k8s"}]
    assert [m for m in monitored(render) if m["metadata"]["name"].endswith("-metrics")] == []


def test_the_network_policy_lets_the_namespace_of_prometheus_in(render: Render) -> None:
    def let_in(manifests: Any) -> list[str]:
        (rule,) = manifests.one("NetworkPolicy", "operator")["spec"]["ingress"]
        return [one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in rule["from"]]

    assert let_in(monitored(render, prometheus=PROMETHEUS)) == ["lp-agents", "monitoring"]
    assert let_in(monitored(render)) == ["lp-agents"]
    assert let_in(render(metrics={"serviceMonitor": {"prometheus": PROMETHEUS}})) == ["lp-agents"]
