"""The wheel of this tree, as it is now."""

import subprocess
from pathlib import Path

import pytest

from release import manual, source, wheel
from release.source import Release

ROOT = Path(__file__).parents[2]
EPOCH = 1_700_000_000


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with a copied tree, compiled programs, man pages and completions."""
    work = tmp_path_factory.mktemp("release")
    (work / "made").mkdir()
    begun = Release(work / "tree", work, work / "made", source.version(ROOT), EPOCH)
    source.copy(ROOT, begun.tree)
    subprocess.run(["make", "-C", begun.tree, "bpf"], check=True, capture_output=True)
    manual.write(begun.tree / "build/share", begun.version, EPOCH)
    return begun


@pytest.fixture(scope="session")
def built(begun: Release) -> Path:
    """Its wheel."""
    return wheel.build(begun.tree, begun.made, EPOCH)
