"""The compiled object: same layouts as records.py, and nothing in it that an old kernel refuses."""

import json
import subprocess
from pathlib import Path

import pytest

from latencyprobe_agent.kernel import records

pytestmark = pytest.mark.root  # needs the built object, bpftool and llvm-objdump

OBJECT = Path(__file__).parents[2] / "build" / "bpf" / "exchange.bpf.o"


def test_object_holds_the_same_structs():
    dump = subprocess.check_output(["bpftool", "-j", "btf", "dump", "file", OBJECT])
    sizes = {t["name"]: t["size"] for t in json.loads(dump)["types"] if t["kind"] == "STRUCT"}
    assert {name: sizes[name] for name in records.STRUCTS} == {n: d.itemsize for n, d in records.STRUCTS.items()}


def test_object_needs_no_atomics_that_5_10_lacks():
    """Fetch-and-add came to BPF with 5.12 (-mcpu=v3); add alone is older."""
    code = subprocess.check_output(["llvm-objdump-19", "-d", OBJECT], text=True)
    assert "lock" in code
    assert "atomic_fetch" not in code
