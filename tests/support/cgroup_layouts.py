"""Whole nodes' trees of cgroups, as container runtimes and cgroup drivers make them: tests/data/cgroup_layouts.txt."""

import hashlib
import re
import uuid
from pathlib import Path

_FILE = Path(__file__).parents[1] / "data/cgroup_layouts.txt"
_SECTION = re.compile(r"^\[(.+)\]\n((?:[^\[\n].*\n)+)", re.MULTILINE)

LAYOUTS = {name: lines.splitlines() for name, lines in _SECTION.findall(_FILE.read_text())}


def uid(pod: str) -> str:
    """Return the uid of the pod of this name."""
    digest = hashlib.sha256(pod.encode()).digest()[:16]
    return digest.hex() if pod == "static" else str(uuid.UUID(bytes=digest, version=4))


def container_id(name: str) -> str:
    """Return the id of the container POD/CONTAINER."""
    return hashlib.sha256(name.encode()).hexdigest()


def make(root: Path, layout: str) -> dict[int, str]:
    """Make a layout's folders below a root; returns the owners of those that have one, by cgroup id."""
    owners = {}
    for line in LAYOUTS[layout]:
        path, owner = line.split("  ")
        folder = root / re.sub("<([^>]+)>", lambda match: _written(match[1]), path)
        folder.mkdir(parents=True, exist_ok=True)
        if owner != "-":
            owners[folder.stat().st_ino] = owner
    return owners


def _written(name: str) -> str:
    if "/" in name:
        return container_id(name)
    return uid(name.removesuffix("_")).replace("-", "_") if name.endswith("_") else uid(name)
