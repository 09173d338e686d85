"""Run the programs that a release is made with, quietly unless they fail."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.errors import ReleaseError


def output(command: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None) -> bytes:
    """Return what a command prints, run in `folder`. Raises ReleaseError with what it says where it fails."""
    try:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ReleaseError(f"{command[0]}: is not installed: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ReleaseError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{said}")
    return done.stdout
