"""What agents hold in the kernel: BPF programs, links and maps, told by their processes' file descriptors.

Ids are not given out again soon, so an id that is still listed is still the same object.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.bpf_ids import alive

KINDS = ("prog", "link", "map")
Objects = dict[str, set[int]]


def held_by(pod: Mapping[str, Any]) -> Objects:
    """The objects that a pod's processes hold, by kind. All nodes share this machine's PID namespace."""
    held: Objects = {kind: set() for kind in KINDS}
    for process in Path("/proc").glob("[0-9]*"):
        if f"pod{pod['metadata']['uid']}" in _read(process / "cgroup"):
            for descriptor in (process / "fdinfo").iterdir():
                fields = dict(line.split(":", 1) for line in _read(descriptor).splitlines() if ":" in line)
                kind = next((kind for kind in ("link", "map", "prog") if f"{kind}_id" in fields), None)
                if kind:  # a link's descriptor names its program too: the first that fits
                    held[kind].add(int(fields[f"{kind}_id"]))
    return held


def numbers_held(pod: Mapping[str, Any]) -> dict[str, int]:
    """How many objects of each kind a pod's processes hold."""
    return {kind: len(ids) for kind, ids in held_by(pod).items()}


def still_there(objects: Objects) -> Objects:
    """Those of the objects that the kernel still knows."""
    return {kind: left for kind in KINDS if (left := objects[kind] & alive(kind))}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended meanwhile
