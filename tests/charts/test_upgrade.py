"""`helm upgrade` from the release before: its values are still understood, and the API server refuses no change."""

import copy
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.schemas import REPOSITORY, Conform
from tests.support.releases import unpack_previous

pytestmark = pytest.mark.cluster

Objects = list[dict[str, Any]]
Render = Callable[..., Any]

# What the API server lets nobody change, by kind; `name` and `namespace` are the object itself.
IMMUTABLE = {
    "ClusterRoleBinding": ["roleRef"],
    "ConfigMap": ["immutable"],
    "CustomResourceDefinition": ["spec.group", "spec.scope", "spec.names"],
    "DaemonSet": ["spec.selector"],
    "Deployment": ["spec.selector"],
    "PersistentVolumeClaim": ["spec.accessModes", "spec.storageClassName", "spec.volumeMode", "spec.selector"],
    "RoleBinding": ["roleRef"],
    "Secret": ["immutable", "type"],
    "Service": ["spec.clusterIP", "spec.type"],
}
MUTABLE = {"ClusterRole", "Lease", "Namespace", "NetworkPolicy", "ResourceQuota", "Role", "ServiceAccount"}
MUTABLE |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
VALUES: list[dict[str, Any]] = [
    {},
    {"persistence": {"storageClassName": "fast", "size": "3Gi"}, "networkPolicy": {"egress": True}},
    {"tls": {"ca": "CA", "certManager": {"issuerRef": {"name": "internal"}}}, "persistence": {"enabled": False}},
]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of the release before."""
    tree = tmp_path_factory.mktemp("before")
    unpack_previous(tree, "charts", "crds")
    return tree / "charts/latencyprobe"


def key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def field(one: Any, path: str) -> Any:
    for name in path.split("."):
        one = (one or {}).get(name)
    return one


def kept(manifests: Iterable[dict[str, Any]]) -> Objects:
    """All but hooks, which Helm makes anew."""
    return [one for one in manifests if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


def refusals(old: Objects, new: Objects) -> list[str]:
    """What the API server would say to the upgrade, and what it would take away."""
    now = {key(one): one for one in new}
    said = [f"{key(one)}: goes, and all that is in it" for one in old if key(one) not in now]
    for one in old:
        for path in IMMUTABLE.get(one["kind"], ()):
            if (found := field(now.get(key(one), one), path)) != field(one, path):
                said.append(f"{key(one)}: {path} is immutable: {field(one, path)} -> {found}")
    for one in new:
        selector = field(one, "spec.selector.matchLabels") or {}
        if not selector.items() <= (field(one, "spec.template.metadata.labels") or selector).items():
            said.append(f"{key(one)}: spec.selector does not match the template's labels")
    return said


@pytest.mark.parametrize("values", VALUES, ids=["default", "stored", "cert-manager"])
def test_the_api_server_refuses_nothing_and_nothing_goes(before: Path, render: Render, values: dict[str, Any]) -> None:
    old, new = kept(render(chart=before, **values)), kept(render(**values))

    assert {one["kind"] for one in old + new} <= {*IMMUTABLE, *MUTABLE, "Certificate"}, (
        "which of its fields may change?"
    )
    assert refusals(old, new) == []


def test_a_changed_selector_and_a_lost_claim_would_be_noticed(manifests: Any) -> None:
    changed = copy.deepcopy([one for one in kept(manifests) if one["kind"] != "PersistentVolumeClaim"])
    next(one for one in changed if one["kind"] == "DaemonSet")["spec"]["selector"] = {"matchLabels": {"app": "agent"}}

    said = "\n".join(refusals(kept(manifests), changed))
    assert "PersistentVolumeClaim" in said
    assert "'DaemonSet', 'lp-agents', 'lp-latencyprobe-agent'): spec.selector is immutable" in said
    assert "does not match the template's labels" in said


def test_the_values_of_the_release_before_are_still_taken(before: Path, render: Render, conform: Conform) -> None:
    conform(yaml.safe_dump_all(render(arguments=("--values", before / "values.yaml", "--values", given(before)))))


def given(before: Path) -> Path:
    """A file of the values without which nothing renders, for use behind a values.yaml, which has them empty."""
    file = before.parent / "given.json"
    file.write_text(json.dumps({"tls": {"existingSecret": "t", "ca": "CA"}, "pairing": {"existingSecret": "p"}}))
    return file


def test_an_upgrade_that_reuses_values_needs_none_that_are_new(
    before: Path, render: Render, conform: Conform, tmp_path: Path
) -> None:
    chart = tmp_path / "latencyprobe"
    shutil.copytree(REPOSITORY / "charts/latencyprobe", chart)
    shutil.copy(before / "values.yaml", chart)  # --reuse-values: the defaults of then, and none of now

    conform(yaml.safe_dump_all(render(chart=chart)))
    monitored = render(chart=chart, metrics={"serviceMonitor": {"enabled": True}})
    assert monitored.one("ServiceMonitor")["spec"]["endpoints"][0]["port"] == "directory"
