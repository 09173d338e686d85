"""eBPF programs of a test's own, compiled as the Makefile does."""

import os
import subprocess
from pathlib import Path

BPF = Path(__file__).parents[2] / "bpf"


def compile_bpf(source: Path, to: Path, headers: Path = BPF) -> None:
    """Compile for the oldest kernels. `headers`: the folder that has those of `bpf/`, or others in their place."""
    machine = os.uname().machine
    arch = {"x86_64": "x86", "aarch64": "arm64"}[machine]
    flags = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v2", f"-D__TARGET_ARCH_{arch}"]
    paths = ["-I", headers, "-idirafter", f"/usr/include/{machine}-linux-gnu"]
    subprocess.run(["clang-19", *flags, *paths, "-c", source, "-o", to], check=True)
