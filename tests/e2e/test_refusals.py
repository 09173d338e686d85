"""A wrong LatencyProbe is refused by the API server and by `latencyprobe validate` alike, and both name the field."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, RefusedError

pytestmark = pytest.mark.e2e

DATA = Path(__file__).parents[1] / "data/latencyprobes"
BAD, GOOD = (sorted((DATA / kind).glob("*.yaml")) for kind in ("bad", "good"))


def expected(path: Path) -> dict[str, str]:
    """The fields that the verdicts name, from the file's first comments; `api`: where the schema's path differs."""
    comments = dict(re.findall(r"^# (path|api): (\S+)$", path.read_text(), re.MULTILINE))
    return {"api": comments["path"]} | comments


def validate(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("latencyprobe"), "validate", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_api_server_refuses_what_validate_refuses_and_both_name_the_field(
    release: Chart, cluster: Cluster, namespace: str
) -> None:
    ours = validate(*BAD)
    wrong = {}
    for path in BAD:
        field = expected(path)
        said = [line for line in ours.stderr.splitlines() if f"/{path.name}: {field['path']}: " in line]
        try:
            theirs = cluster.kubectl("apply", "--dry-run=server", "-n", namespace, "-f", str(path))
        except RefusedError as refused:
            theirs = str(refused) if field["api"] not in str(refused) else ""
        if theirs or not said:
            wrong[path.name] = (theirs, said)

    assert wrong == {}
    assert ours.returncode == 1


def test_both_accept_what_is_right(release: Chart, cluster: Cluster, namespace: str) -> None:
    for path in GOOD:
        cluster.kubectl("apply", "--dry-run=server", "-n", namespace, "-f", str(path))
    ours = validate(*GOOD)

    assert ours.returncode == 0, ours.stderr


def test_the_same_manifest_is_applied_again_server_side_without_a_conflict(
    release: Chart, cluster: Cluster, namespace: str
) -> None:
    """Others may own the fields by now: who applied them client-side before."""
    for path in GOOD:
        if path.name == "nulls.yaml":
            continue  # a null is applied as one, and kept as its default
        cluster.kubectl("apply", "-n", namespace, "-f", str(path))
        cluster.kubectl("apply", "--server-side", "-n", namespace, "-f", str(path))
        cluster.kubectl("delete", "--wait=false", "-n", namespace, "-f", str(path))
