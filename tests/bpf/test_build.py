"""The compiled objects: same layouts as records.py, and nothing in it that an old kernel refuses."""

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from latencyprobe_agent.vocabulary import records

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


def frames_and_calls(path: Path) -> tuple[dict[str, int], dict[str, set[str]], set[str]]:
    """Bytes of stack that each function uses, which functions it calls, and the programs, from the object's code."""
    frames, calls, programs = defaultdict(int), defaultdict(set), set()
    starts: dict[int, str] = {}  # of functions in .text, by instruction
    far: list[tuple[str, int]] = []
    section = function = register = ""
    call = 0
    listing = subprocess.check_output(["llvm-objdump-19", "-dr", "--no-show-raw-insn", path], text=True)
    for line in listing.splitlines():
        if found := re.match(r"Disassembly of section (\S+):", line):
            section = found[1]
        elif found := re.match(r"([0-9a-f]{16}) <(\S+)>:", line):
            function = found[2]
            if section == ".text":
                starts[int(found[1], 16) // 8] = function
            else:
                programs.add(function)
        elif found := re.search(r"r10 - (0x[0-9a-f]+)", line):
            frames[function] = max(frames[function], int(found[1], 16))
        elif found := re.search(r"(r\d) = r10$", line):
            register = found[1]
        elif register and (found := re.search(rf"{register} \+= -(0x[0-9a-f]+)", line)):
            frames[function] = max(frames[function], int(found[1], 16))
            register = ""
        elif found := re.search(r"call (-?0x[0-9a-f]+)", line):
            call = int(found[1], 16)
        elif found := re.search(r"R_BPF_64_32\s+(\S+)", line):
            if found[1] == ".text":
                far.append((function, call + 1))
            else:
                calls[function].add(found[1])
    for function, at in far:
        calls[function].add(starts[at])
    return frames, calls, programs


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem)
def test_every_chain_of_calls_fits_the_stack_of_kernels_before_6_13(path: Path):
    """512 bytes for all frames together, each rounded up to 32 (kernel/bpf/verifier.c, check_max_stack_depth)."""
    frames, calls, programs = frames_and_calls(path)

    def deepest(function: str) -> int:
        own = (max(frames[function], 1) + 31) // 32 * 32
        return own + max(map(deepest, calls[function]), default=0)

    depths = {program: deepest(program) for program in programs}
    print(f"{path.name}: {max(depths.values())} bytes, in {max(depths, key=depths.__getitem__)}")
    assert depths
    assert {program: depth for program, depth in depths.items() if depth > 512} == {}
