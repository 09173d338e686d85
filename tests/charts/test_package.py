"""What a catalogue of charts such as Artifact Hub is told, held against the chart; and the package itself."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from latencyprobe import parsing
from tests.charts.schemas import REPOSITORY

CHART = REPOSITORY / "charts/latencyprobe"
TOLD = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
KINDS_OF_CHANGE = {"added", "changed", "deprecated", "removed", "fixed", "security"}
# https://artifacthub.io/docs/topics/annotations/helm/
CAPABILITIES = {"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}


def told(name: str) -> Any:
    return yaml.safe_load(TOLD[f"artifacthub.io/{name}"])


def test_definitions_are_those_of_the_repository() -> None:
    sources = [yaml.safe_load(path.read_text()) for path in sorted((REPOSITORY / "crds").glob("*.yaml"))]

    assert [(one["name"], one["kind"], one["version"]) for one in told("crds")] == [
        (one["metadata"]["name"], one["spec"]["names"]["kind"], version["name"])
        for one in sources
        for version in one["spec"]["versions"]
    ]


def test_example_of_a_latency_probe_is_valid() -> None:
    (example,) = told("crdsExamples")

    assert parsing.parse(example).name == "checkout"


def test_words_that_the_catalogue_knows() -> None:
    assert {change["kind"] for change in told("changes")} <= KINDS_OF_CHANGE
    assert told("operatorCapabilities") in CAPABILITIES
    assert {type(value) for value in TOLD.values()} == {str}, "annotations are text"


def test_values_that_the_readme_names_exist() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = [line.split("|")[1] for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| `")]

    assert len(rows) > 5
    for name in (word.strip("`, ") for row in rows for word in row.split() if not word.startswith("`.")):
        found: Any = values
        for part in name.split("."):
            assert part in found, name
            found = found[part]


@pytest.mark.cluster
def test_images_are_those_that_run(manifests: Any) -> None:
    pods = [manifests.one(kind)["spec"]["template"]["spec"] for kind in ("Deployment", "DaemonSet")]

    assert [one["image"] for one in told("images")] == [pod["containers"][0]["image"] for pod in pods]


@pytest.mark.cluster
def test_package_has_the_definitions_as_files(helm: Callable[..., Any], tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)

    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = {member.name: member for member in archive}
        for source in (REPOSITORY / "crds").glob("*.yaml"):
            packed = archive.extractfile(names[f"latencyprobe/files/crds/{source.name}"])
            assert packed
            assert packed.read() == source.read_bytes()
    assert {"latencyprobe/README.md", "latencyprobe/values.schema.json"} <= names.keys()
