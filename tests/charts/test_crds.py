from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]
Render = Callable[..., Any]

SOURCES = {
    document["metadata"]["name"]: document
    for path in (REPOSITORY / "crds").glob("*.yaml")
    for document in yaml.safe_load_all(path.read_text())
}


def definitions(manifests: Any) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == "CustomResourceDefinition"}


def test_chart_installs_exactly_the_definitions_of_the_repository(manifests: Any) -> None:
    assert {"latencyprobes.latencyprobe.dev", "latencyreports.latencyprobe.dev"} == SOURCES.keys()
    assert {name: source["spec"] for name, source in SOURCES.items()} == {
        name: rendered["spec"] for name, rendered in definitions(manifests).items()
    }


def test_definitions_can_be_left_to_somebody_else(render: Render) -> None:
    assert definitions(render(crds={"install": False})) == {}


@pytest.mark.parametrize(("keep", "policy"), [(True, "keep"), (False, None)])
def test_definitions_outlive_the_release_only_if_asked(render: Render, keep: bool, policy: str | None) -> None:
    for definition in definitions(render(crds={"keep": keep})).values():
        assert definition["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == policy
