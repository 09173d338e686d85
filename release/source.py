"""What a release is made of: the files that git knows, their version, and the time of the commit.

Everything is built in a copy: its modes do not depend on anybody's umask, and nothing of earlier builds lies in it.
"""

import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

import yaml

from release.commands import output
from release.errors import ReleaseError

CHART = Path("charts/latencyprobe")


class Release(NamedTuple):
    """One that is being made: of which copy, where each step may put what it needs, and where what is released goes.
    `epoch`: the only time that it tells, in seconds since 1970."""

    tree: Path
    work: Path
    made: Path
    version: str
    epoch: int


def version(root: Path) -> str:
    """Return the version in pyproject.toml. Raises ReleaseError where the chart has another."""
    told = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    images = re.findall(r"image: \S+:(\S+)", chart["annotations"]["artifacthub.io/images"])
    fields = {"version": chart["version"], "appVersion": chart["appVersion"]}
    fields |= {f"image {number} of annotations": image for number, image in enumerate(images)}
    for field, found in fields.items():
        if found != told:
            raise ReleaseError(f"{CHART}/Chart.yaml: {field}: {found}, but pyproject.toml says {told}: set both")
    return told


def epoch(root: Path) -> int:
    """Return the release's time, in seconds since 1970: SOURCE_DATE_EPOCH, or that of the commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct"))


def changes(root: Path) -> list[str]:
    """Return the files that differ from the commit; git knows them, or would add them."""
    return _git(root, "status", "--porcelain").decode().splitlines()


def copy(root: Path, to: Path) -> None:
    """Copy the files that git knows or would add, as they are now; of modes what git keeps. .venv comes as a link."""
    for name in _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0"):
        source, target = root / name, to / name
        if not name or not (source.is_symlink() or source.exists()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        else:
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    for folder in [to, *(path for path in to.rglob("*") if path.is_dir() and not path.is_symlink())]:
        folder.chmod(0o755)
    (to / ".venv").symlink_to(root / ".venv")


def _git(root: Path, *words: str) -> bytes:
    return output(["git", "-c", f"safe.directory={root}", *words], root)
