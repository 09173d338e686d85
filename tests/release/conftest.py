"""The wheel of this tree, as it is now, and its Debian package."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from release import deb, manual, source, wheel
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


@pytest.fixture(scope="session")
def package(begun: Release, built: Path) -> Path:
    """Its package, which takes minutes: made once for all processes and runs that test the same tree."""
    digest = hashlib.sha256(built.read_bytes())
    for path in (ROOT / "constraints.txt", *sorted((ROOT / "release").rglob("*.py")), *sorted(deb.SCRIPTS.iterdir())):
        digest.update(path.read_bytes())
    kept, folder = ROOT / "build/tests/deb", ROOT / "build/tests/deb" / digest.hexdigest()
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for older in (path for path in kept.iterdir() if path.is_dir()):
                shutil.rmtree(older)
            (part := folder.with_suffix(".part")).mkdir()
            shutil.copy(deb.build(begun, built), part)
            part.rename(folder)
    (found,) = folder.glob("*.deb")
    return found
