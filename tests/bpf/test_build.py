"""The compiled objects: same layouts as records.py, and nothing in it that an old kernel refuses."""

import json
import subprocess
from pathlib import Path

import pytest

from latencyprobe_agent.kernel import records

pytestmark = pytest.mark.root  # needs the built object, bpftool and llvm-objdump

OBJECTS = sorted((Path(__file__).parents[2] / "build" / "bpf").glob("*.bpf.o"))


def structs(path: Path) -> dict[str, int]:
    dump = subprocess.check_output(["bpftool", "-j", "btf", "dump", "file", path])
    found = {t["name"]: t["size"] for t in json.loads(dump)["types"] if t["kind"] == "STRUCT"}
    return {name: size for name, size in found.items() if name in records.STRUCTS}


def test_objects_hold_the_same_structs():
    ours = {name: dtype.itemsize for name, dtype in records.STRUCTS.items()}
    theirs = [structs(path) for path in OBJECTS]
    for path, found in zip(OBJECTS, theirs, strict=True):
        assert found == {name: ours[name] for name in found}, path
    assert set().union(*theirs) == ours.keys()


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem)
def test_object_needs_no_atomics_that_5_10_lacks(path: Path):
    """Fetch-and-add came to BPF with 5.12 (-mcpu=v3); add alone is older."""
    code = subprocess.check_output(["llvm-objdump-19", "-d", path], text=True)
    assert "lock" in code
    assert "atomic_fetch" not in code
