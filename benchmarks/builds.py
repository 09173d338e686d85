"""Compiles what the bench is made of: the empty hooks, the ping-pong, the open-loop generator and its echo."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
OBJECTS = ROOT / "build" / "bpf"
_SOURCES = ROOT / "benchmarks"


def build() -> None:
    """Compile everything; needs clang and a C compiler."""
    BUILD.mkdir(parents=True, exist_ok=True)
    includes = [word for path in Path("/usr/include").glob("*-linux-gnu") for word in ("-idirafter", str(path))]
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v2", *includes]
    subprocess.run(["clang-19", *flags, "-c", _SOURCES / "empty.bpf.c", "-o", BUILD / "empty.bpf.o"], check=True)
    for name in ("pingpong", "openloop", "echo"):
        words = ("cc", "-O2", "-Wall", "-Werror", "-o", BUILD / name, _SOURCES / f"{name}.c", "-lm")
        subprocess.run(list(map(str, words)), check=True)
