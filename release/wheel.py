"""The wheel: modules, compiled programs, man pages, completions (setup.py puts them together)."""

import os
import sys
from pathlib import Path

from release.commands import output


def build(tree: Path, to: Path, epoch: int) -> Path:
    """Build the wheel of a copied tree, in whose build/ lie programs and share/; return it. setuptools comes from PyPI,
    in the version of constraints.txt."""
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PIP_CONSTRAINT": "constraints.txt"}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    output([*pip, "--wheel-dir", to, tree], tree, environ)
    (built,) = to.glob("*.whl")
    return built
