"""release/images.py: the checkout installs what images need to be built, not the copy that is thrown away."""

import os
from pathlib import Path

import pytest

from release import images
from release.source import Release

RECORD = """#!/bin/sh
echo "$PWD: $(basename "$0") $1" >>{log}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def checkout(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout and below it its copy, whose scripts record where they run."""
    root = tmp_path / "checkout"
    for script in ("scripts/setup", "tests/e2e/bench/bench"):
        for of in (root, root / "build/copy"):
            (of / script).parent.mkdir(parents=True, exist_ok=True)
            (of / script).write_text(RECORD.format(log=log))
            (of / script).chmod(0o755)
    monkeypatch.setattr(images, "ROOT", root)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return root


def test_the_checkout_is_set_up_and_the_copy_is_built(checkout: Path, tmp_path: Path, log: Path) -> None:
    copy = checkout / "build/copy"
    (tmp_path / "made").mkdir()
    images.build(Release(copy, tmp_path, tmp_path / "made", "1.0.0", 0))

    told = log.read_text().splitlines()
    assert told == [f"{checkout}: setup --test", f"{copy}: bench releases", f"{copy}: bench sbom"]
