"""The release before this one, out of the repository's history."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREVIOUS = "6340afda5349399a243644218a0c93580bb0b6bd"


def unpack_previous(tree: Path, *paths: str) -> None:
    """Put these paths of the release before into a folder, all of it without any. Skips without git or the history."""
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "archive", PREVIOUS, *paths]
    done = subprocess.run(command, capture_output=True, check=False) if shutil.which("git") else None
    if done is None or not done.stdout:
        pytest.skip("the history of the repository")
    tree.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", tree], input=done.stdout, check=True)
