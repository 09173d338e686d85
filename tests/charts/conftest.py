"""The chart as the real Helm renders it: lists of parsed Kubernetes objects, without a cluster."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.schemas import Conform, conforming
from tests.support.api_server import bench

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "latencyprobe"

# Without a cluster the chart cannot find the Secrets that it made, so it must be told of existing ones.
GIVEN = {
    "tls": {"existingSecret": "given-tls", "ca": "GIVEN CA"},
    "pairing": {"existingSecret": "given-pair"},
}


class Manifests(list[dict[str, Any]]):
    """Rendered objects, hooks included."""

    def one(self, kind: str, component: str | None = None) -> dict[str, Any]:
        """Return the only object of that kind (and component label)."""
        found = [
            item
            for item in self
            if item["kind"] == kind and component in (None, item["metadata"]["labels"]["app.kubernetes.io/component"])
        ]
        assert len(found) == 1, f"{len(found)} objects of kind {kind}, component {component}"
        return found[0]


Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., Manifests]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Run Helm; it is compiled at first use and kept in the bench's cache."""
    program = bench("program", "helm")

    def run(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def render(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render the chart of a release `lp` in namespace `watch` with these values over `GIVEN`."""

    def run(release: str = "lp", arguments: Sequence[str | Path] = (), chart: Path = CHART, **values: Any) -> Manifests:
        file = tmp_path_factory.mktemp("values") / "values.json"
        file.write_text(json.dumps(GIVEN | values))
        done = helm(
            "template", release, chart, "--namespace", "watch", "--kube-version", "1.30", "--values", file, *arguments
        )
        return Manifests(item for item in yaml.safe_load_all(done.stdout) if item)

    return run


@pytest.fixture(scope="session")
def manifests(render: Render) -> Manifests:
    """The chart with the values that a user gets by default."""
    return render()


@pytest.fixture(scope="session")
def conform(tmp_path_factory: pytest.TempPathFactory) -> Conform:
    """Hold a stream of objects, as text, against their schemas."""
    return conforming(tmp_path_factory.mktemp("schemas"))
