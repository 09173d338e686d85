import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.schemas import Conform

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "latencyprobe"
Render = Callable[..., Any]
Helm = Callable[..., Any]

LABELS = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def test_lint_has_nothing_to_say(helm: Helm) -> None:
    done = helm("lint", "--strict", CHART, "--set", "tls.existingSecret=t,tls.ca=c,pairing.existingSecret=p")

    assert "[WARNING]" not in done.stdout + done.stderr
    assert "[ERROR]" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"networkPolicy": {"egress": True}, "persistence": {"enabled": False}, "crds": {"keep": True}},
        {
            "otlp": {"endpoint": "https://c:4318", "operator": True, "caConfigMap": "ca"},
            "agent": {"suspend": True, "kernelNames": True, "userStacks": True, "maxUnavailable": 1},
            "persistence": {"storageClassName": "fast"},
            "slo": {
                "store": "prometheus",
                "prometheus": {"url": "http://p:9090", "tokenSecret": "token", "caConfigMap": "ca"},
            },
        },
    ],
)
def test_every_object_has_only_fields_that_kubernetes_knows(
    render: Render, conform: Conform, values: dict[str, Any]
) -> None:
    conform(yaml.safe_dump_all(render(**values)))


def test_names_that_are_numbers_are_names(render: Render, conform: Conform) -> None:
    """A namespace may be called 1234."""
    values: dict[str, Any] = {
        "otlp": {"endpoint": "https://c:4318", "operator": True, "caConfigMap": "1000"},
        "slo": {"store": "prometheus", "prometheus": {"url": "http://p:9090", "tokenSecret": "7", "caConfigMap": "8"}},
        "metrics": {"serviceMonitor": {"enabled": True}},
        "pairing": {"existingSecret": "1000"},
        **{of: {"image": {"pullSecrets": ["1"]}, "priorityClassName": "10"} for of in ("agent", "operator")},
    }
    tls = {"existingSecret": "1234", "caConfigMap": "0777"}
    for persistence in ({"existingClaim": "2024"}, {"storageClassName": "3"}):
        rendered = render("lp", ["--namespace", "1234"], tls=tls, persistence=persistence, **values)
        conform(yaml.safe_dump_all(rendered))
        namespaces = {m["metadata"]["namespace"] for m in rendered if m["kind"] not in CLUSTER_SCOPED}
        assert namespaces == {"1234", "lp-agents"}


@pytest.mark.parametrize("release", ["my.release", "1probe"])
def test_release_name_of_which_no_valid_names_can_be_made_is_refused(render: Render, release: str) -> None:
    """The API server would refuse a Service or the agents' namespace, when the rest is there."""
    with pytest.raises(AssertionError, match=f"release name {release}: .* begin with a letter"):
        render(release)


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert {chart["version"], chart["appVersion"]} == {project["version"]}


def test_every_object_has_all_labels(manifests: Any) -> None:
    lacking = {f"{m['kind']}/{m['metadata']['name']}": LABELS - m["metadata"]["labels"].keys() for m in manifests}

    assert {name: missing for name, missing in lacking.items() if missing} == {}


def test_objects_stay_in_the_two_namespaces(manifests: Any) -> None:
    namespaces = {m["metadata"].get("namespace") for m in manifests if m["kind"] not in CLUSTER_SCOPED}

    assert namespaces == {"watch", "lp-agents"}


@pytest.mark.parametrize(("release", "name"), [("lp", "lp-latencyprobe-agent"), ("latencyprobe", "latencyprobe-agent")])
def test_release_name_is_not_repeated(render: Render, release: str, name: str) -> None:
    daemonset = render(release).one("DaemonSet")

    assert (daemonset["metadata"]["name"], daemonset["metadata"]["namespace"]) == (name, f"{release}-agents")


def test_names_of_a_long_release_name_stay_valid(render: Render) -> None:
    names = [m["metadata"]["name"] for m in render("r" * 53) if m["kind"] != "CustomResourceDefinition"]

    assert [name for name in names if len(name) > 63] == []


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"otlp": {"endpoint": "jaeger:4318"}}, "/otlp/endpoint"),
        ({"persistence": {"enabled": "no"}}, "/persistence/enabled"),
        ({"persistence": {"size": "many"}}, "/persistence/size"),
        ({"agent": {"image": {"repository": "A B"}}}, "/agent/image/repository"),
        ({"agent": {"image": {"registry": "https://ghcr.io/me"}}}, "/agent/image/registry"),
        ({"agent": {"image": {"registry": "ghcr.io/me/"}}}, "/agent/image/registry"),
        ({"agent": {"image": {"digest": "sha256:12"}}}, "/agent/image/digest"),
        ({"agent": {"image": {"pullPolicy": "Sometimes"}}}, "/agent/image/pullPolicy"),
        ({"agent": {"maxUnavailable": "0%"}}, "/agent/maxUnavailable"),
        ({"agent": {"privileged": True}}, "privileged"),
        ({"agent": {"cgroupPath": "sys/fs"}}, "/agent/cgroupPath"),
        ({"operator": {"replicas": 2}}, "replicas"),
        ({"networkPolicy": {"apiServerPorts": [0]}}, "/networkPolicy/apiServerPorts/0"),
        ({"crds": {"keep": "yes"}}, "/crds/keep"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "/metrics/serviceMonitor/interval"),
        ({"metrics": {"serviceMonitor": {"prometheus": {"serviceAccount": "p"}}}}, "prometheus/namespace"),
        ({"slo": {"store": "prometheus"}}, "/slo/prometheus/url"),
        ({"slo": {"prometheus": {"url": "http://me:secret@prometheus:9090"}}}, "/slo/prometheus/url"),
        ({"slo": {"prometheus": {"headers": {"X Y": "a"}}}}, "invalid propertyName 'X Y'"),
        ({"slo": {"prometheus": {"timeoutSeconds": 600}}}, "/slo/prometheus/timeoutSeconds"),
        ({"slo": {"openReports": {"enabled": "yes"}}}, "/slo/openReports/enabled"),
        ({"slo": {"prometheusRules": {"labels": {"release": 1}}}}, "/slo/prometheusRules/labels/release"),
        ({"metrics": {"prometheusRule": {"enabled": 1}}}, "/metrics/prometheusRule/enabled"),
        ({"dashboards": {"labels": {"grafana_dashboard": 1}}}, "/dashboards/labels/grafana_dashboard"),
        ({"typo": 1}, "typo"),
    ],
)
def test_bad_value_is_refused_with_its_path(refused: Callable[..., str], values: dict[str, Any], path: str) -> None:
    assert path in refused(**values)


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "latencyprobe/agent:0.1.0"),
        ({"tag": "7"}, "latencyprobe/agent:7"),
        ({"registry": "local:5000", "tag": "7"}, "local:5000/latencyprobe/agent:7"),
        ({"registry": "ghcr.io/me", "tag": "7"}, "ghcr.io/me/latencyprobe/agent:7"),
        ({"registry": "docker.pkg.dev/p-1/r_2", "tag": "7"}, "docker.pkg.dev/p-1/r_2/latencyprobe/agent:7"),
        ({"tag": "7", "digest": "sha256:" + "0" * 64}, "latencyprobe/agent@sha256:" + "0" * 64),
    ],
)
def test_registry_may_have_a_path_and_digest_wins_over_tag(
    render: Render, image: dict[str, str], reference: str
) -> None:
    agent = render(agent={"image": image}).one("DaemonSet")["spec"]["template"]["spec"]["containers"][0]

    assert agent["image"] == reference


@pytest.fixture
def refused(helm: Helm, tmp_path: Path) -> Callable[..., str]:
    def run(**values: Any) -> str:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        done = helm("template", "lp", CHART, "--values", file, check=False)
        assert done.returncode != 0, "accepted"
        return done.stderr

    return run
