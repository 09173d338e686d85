"""The wheel of this tree, as it is now."""

import shutil
import subprocess
from pathlib import Path

import pytest

from release import manual, source, wheel
from release.source import Release

ROOT = Path(__file__).parents[2]
EPOCH = 1_700_000_000


def stale(objects: list[str]) -> list[str]:
    """Those whose source is gone."""
    return [name for name in objects if not (ROOT / "bpf" / name.replace(".o", ".c")).exists()]


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with a copied tree, compiled programs (those of the checkout: they are the same bits everywhere), man
    pages and completions."""
    work = tmp_path_factory.mktemp("release")
    (work / "made").mkdir()
    begun = Release(work / "tree", work, work / "made", source.version(ROOT), EPOCH)
    source.copy(ROOT, begun.tree)
    subprocess.run(["make", "-C", ROOT, "bpf"], check=True, capture_output=True)
    shutil.copytree(ROOT / "build/bpf", begun.tree / "build/bpf", ignore=lambda _, names: stale(names))
    manual.write(begun.tree / "build/share", begun.version, EPOCH)
    return begun


@pytest.fixture(scope="session")
def built(begun: Release) -> Path:
    """Its wheel."""
    return wheel.build(begun.tree, begun.made, EPOCH)
