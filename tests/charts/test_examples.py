"""The examples are what their readers would try: each one valid, and both of its sides naming each other."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from latencyprobe import parsing
from latencyprobe.rules import forms
from latencyprobe_agent.telemetry.endpoints import Settings, endpoints
from tests.charts.schemas import REPOSITORY, Conform

EXAMPLES = REPOSITORY / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
VALUES = [file for file in FILES if file.name == "values.yaml"]
OBJECTS = [file for file in FILES if file not in VALUES and file.parent.name != "kind"] + [EXAMPLES / "kind/redis.yaml"]

Render = Callable[..., Any]
with_helm = pytest.mark.cluster


def label(file: Path) -> str:
    return str(file.relative_to(EXAMPLES))


def objects(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def one(file: Path, kind: str) -> dict[str, Any]:
    (found,) = (item for item in objects(file) if item["kind"] == kind)
    return found


@pytest.fixture
def install(render: Render) -> Render:
    """Render the chart as README installs it, with the values of these examples."""

    def run(*folders: str, more: Sequence[str] = ()) -> Any:
        words = [word for folder in folders for word in ("--values", EXAMPLES / folder / "values.yaml")]
        return render("latencyprobe", ("--namespace", "latencyprobe", *words, *more))

    return run


def sent(manifests: Any) -> dict[str, Settings]:
    """Where the agents send each OTLP signal, as they read it themselves."""
    container = manifests.one("DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    return {one.signal: one for one in endpoints({e["name"]: e["value"] for e in container["env"] if "value" in e})}


def reachable(file: Path) -> Iterator[tuple[str, int]]:
    for service in (item for item in objects(file) if item["kind"] == "Service"):
        for port in service["spec"]["ports"]:
            yield f"{service['metadata']['name']}.{service['metadata']['namespace']}", port["port"]


@pytest.mark.parametrize(
    "file", [file for file in OBJECTS if any(item["kind"] == "LatencyProbe" for item in objects(file))], ids=label
)
def test_every_latency_probe_is_valid(file: Path) -> None:
    for item in objects(file):
        if item["kind"] == "LatencyProbe":
            parsing.parse(item)


def test_every_folder_is_told_of_with_a_command_that_names_its_files() -> None:
    told = (EXAMPLES / "README.md").read_text()
    for folder in (path for path in EXAMPLES.iterdir() if path.is_dir()):
        assert f"\n| [{folder.name}]({folder.name}) |" in told
    named = set(re.findall(r"examples/[a-z/-]+\.yaml", told))
    assert named
    assert {name for name in named if not (REPOSITORY / name).exists()} == set()


@with_helm
@pytest.mark.parametrize("file", OBJECTS, ids=label)
def test_kubernetes_knows_every_field(conform: Conform, file: Path) -> None:
    conform(file.read_text())


@with_helm
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=label)
def test_the_prometheus_operator_takes_the_rules(conform: Conform, file: Path) -> None:
    conform(forms.text("prometheusrule", parsing.load_file(file)))


@with_helm
@pytest.mark.parametrize("file", VALUES, ids=label)
def test_the_chart_takes_the_values(conform: Conform, install: Render, file: Path) -> None:
    conform(yaml.safe_dump_all(install(file.parent.name)))


@with_helm
@pytest.mark.parametrize("backend", ["jaeger", "tempo"])
def test_traces_and_nothing_else_go_to_the_service_that_takes_them(install: Render, backend: str) -> None:
    got = {signal: (urlsplit(to.url).hostname, urlsplit(to.url).port) for signal, to in sent(install(backend)).items()}

    assert got.keys() == {"traces"}
    assert got["traces"] in set(reachable(EXAMPLES / backend / f"{backend}.yaml"))


@with_helm
def test_with_prometheus_last_metrics_go_there_and_traces_where_they_went(install: Render) -> None:
    both = sent(install("jaeger", "prometheus"))
    metrics = urlsplit(both["metrics"].url)

    assert both["traces"] == sent(install("jaeger"))["traces"]
    assert (metrics.hostname, metrics.port) in set(reachable(EXAMPLES / "prometheus/prometheus.yaml"))
    assert metrics.path == "/api/v1/otlp/v1/metrics"


@with_helm
@pytest.mark.parametrize("folders", [[file.parent.name] for file in VALUES] + [["tempo", "prometheus"]], ids="+".join)
def test_agents_reach_where_they_send_also_where_egress_is_denied(install: Render, folders: list[str]) -> None:
    manifests = install(*folders, more=["--set=networkPolicy.egress=true"])
    rules = manifests.one("NetworkPolicy", "agent")["spec"]["egress"]
    ports = {port["port"] for rule in rules if "to" not in rule for port in rule["ports"]}

    assert {urlsplit(to.url).port for to in sent(manifests).values()} <= ports


@with_helm
def test_prometheus_scrapes_the_port_that_serves_metrics_and_is_let_in(install: Render) -> None:
    file = EXAMPLES / "prometheus/prometheus.yaml"
    (job,) = yaml.safe_load(one(file, "ConfigMap")["data"]["prometheus.yml"])["scrape_configs"]
    manifests = install("prometheus")
    service = manifests.one("Service")
    policy = manifests.one("NetworkPolicy", "operator")["spec"]["ingress"][0]["from"]
    namespace = one(file, "Deployment")["metadata"]["namespace"]

    (port,) = (one["port"] for one in service["spec"]["ports"])
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert job["static_configs"] == [{"targets": [f"{host}:{port}"]}], "the name in the certificate"
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}} in policy


def test_prometheus_has_the_files_that_its_configuration_names_and_may_read_metrics() -> None:
    file = EXAMPLES / "prometheus/prometheus.yaml"
    (job,) = yaml.safe_load(one(file, "ConfigMap")["data"]["prometheus.yml"])["scrape_configs"]
    pod = one(file, "Deployment")["spec"]["template"]["spec"]
    mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    authority = volumes[mounted[str(Path(job["tls_config"]["ca_file"]).parent)]]["configMap"]["name"]

    assert f"kubectl create configmap {authority} -n monitoring" in file.read_text()
    assert job["authorization"] == {"credentials_file": "/var/run/secrets/kubernetes.io/serviceaccount/token"}
    assert one(file, "ClusterRole")["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert one(file, "ClusterRoleBinding")["subjects"][0]["name"] == pod["serviceAccountName"]
