"""The chart as Helm packages it, and as plain manifests (scripts/manifests)."""

from pathlib import Path

from release import archive
from release.commands import output
from release.source import CHART, Release


def package(release: Release) -> Path:
    """Package the chart; return it. Helm writes the time into it: it is packed again without."""
    tree, folder = release.tree, release.work / "chart"
    helm = output([tree / "tests/e2e/bench/bench", "program", "helm"], tree).decode().strip()
    output([helm, "package", tree / CHART, "--destination", folder], tree)
    (packed,) = folder.glob("*.tgz")
    made = release.made / packed.name
    made.write_bytes(archive.repacked(packed, release.epoch))
    return made


def manifests(release: Release) -> None:
    """Write what `kubectl apply` takes, and the script that makes its Secrets."""
    tree, to = release.tree, release.made / "manifests"
    to.mkdir()
    (to / "latencyprobe.yaml").write_bytes(output([tree / "scripts/manifests"], tree))
    (to / "secrets.sh").write_bytes((tree / "examples/plain/secrets.sh").read_bytes())
