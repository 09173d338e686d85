"""The same commit is the same release: built in two folders, under other times, zones, umasks and hash seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from release import source

ROOT = Path(__file__).parents[2]
WITHOUT = [word for part in ("krew", "chart", "images") for word in ("--without", part)]


def build(tree: Path, umask: str, **more: str) -> dict[str, str]:
    """Release a copied tree as a commit of its own; return the sums of what was made, by name."""
    date = "2026-01-02T03:04:05Z"
    who = {f"GIT_{role}_{field}": "a" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    environ = os.environ | who | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} | more
    environ.pop("SOURCE_DATE_EPOCH", None)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tree, env=environ, check=True)
    command = f'umask {umask}; exec "$@"'
    release = [sys.executable, "-m", "release", *WITHOUT]
    done = subprocess.run(
        ["sh", "-c", command, "-", *release], cwd=tree, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = tree / "build/release"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made, check=True)
    lines = (line.split("  ") for line in (made / "SHA256SUMS").read_text().splitlines())
    return {name: digest for digest, name in lines}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_builds_in_two_folders_are_the_same_bits(tmp_path: Path) -> None:
    trees = [tmp_path / name for name in ("one", "a longer name")]
    for tree in trees:
        source.copy(ROOT, tree)
    first = build(trees[0], "022", TZ="UTC", PYTHONHASHSEED="1", LANG="C.UTF-8")
    second = build(trees[1], "077", TZ="Asia/Tokyo", PYTHONHASHSEED="2", LANG="C", COLUMNS="40")

    assert second == first
    kinds = {Path(name).suffix for name in first}
    assert {".whl", ".deb", ".gz", ".1", ".fish"} <= kinds
    assert len(first) > 25
