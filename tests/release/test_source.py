"""release/source.py: one version, one time, and the files that git knows."""

import os
import subprocess
from pathlib import Path

import pytest

from release import source
from release.errors import ReleaseError

ROOT = Path(__file__).parents[2]
CHART = (ROOT / source.CHART / "Chart.yaml").read_text()
VERSION = source.version(ROOT)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""
    root = tmp_path / "tree"
    (root / source.CHART).mkdir(parents=True)
    (root / source.CHART / "Chart.yaml").write_text(CHART)
    (root / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (root / ".gitignore").write_text("/build\n/.venv\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o700)
    (root / "link").symlink_to("run")
    date = "2026-01-02T03:04:05Z"
    who = {f"GIT_{role}_{field}": "a" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    environ = os.environ | who | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=root, env=environ, check=True)
    return root


def test_chart_and_package_have_one_version() -> None:
    assert VERSION.count(".") == 2


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (f"\nversion: {VERSION}\n", "version"),
        (f'\nappVersion: "{VERSION}"\n', "appVersion"),
        (f"latencyprobe/agent:{VERSION}\n", "image 1 of annotations"),
    ],
)
def test_another_version_in_the_chart_is_named_with_both(tree: Path, line: str, field: str) -> None:
    (tree / source.CHART / "Chart.yaml").write_text(CHART.replace(line, line.replace(VERSION, "9.9.9")))

    with pytest.raises(ReleaseError, match=rf"{field}: 9\.9\.9, but pyproject\.toml says {VERSION}"):
        source.version(tree)


def test_time_is_that_of_the_commit_unless_it_is_given(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert source.epoch(tree) == 1_767_323_045

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    assert source.epoch(tree) == 7


def test_what_differs_from_the_commit_is_told(tree: Path) -> None:
    assert source.changes(tree) == []
    (tree / "run").write_text("#!/bin/bash\n")
    (tree / "new").touch()
    assert source.changes(tree) == [" M run", "?? new"]


def test_copy_has_what_git_knows_with_the_modes_that_git_keeps(tree: Path, tmp_path: Path) -> None:
    (tree / "build").mkdir()
    (tree / "build/stale.py").touch()
    (tree / "pyproject.toml").chmod(0o600)
    source.copy(tree, tmp_path / "copy")

    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert copied == {".gitignore", ".venv", "charts", "charts/latencyprobe", "charts/latencyprobe/Chart.yaml"} | {
        "link",
        "pyproject.toml",
        "run",
    }
    assert [(tmp_path / "copy" / name).stat().st_mode & 0o777 for name in ("pyproject.toml", "run")] == [0o644, 0o755]
    assert (tmp_path / "copy/link").readlink() == Path("run")
