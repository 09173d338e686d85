"""Profiles of `latencyprobe flame -o pprof`, as Go's own tool reads them."""

import re
import subprocess
from pathlib import Path

import pytest

from latencyprobe_agent.flame import pprof
from tests.e2e.bench.cluster import BENCH

pytestmark = pytest.mark.e2e  # it has what compiles the cluster's programs; a cluster is not needed


def test_the_original_tool_reads_a_profile(tmp_path: Path) -> None:
    go = subprocess.run([BENCH, "go"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    profile = tmp_path / "flame.pb.gz"
    profile.write_bytes(pprof.encode({("[a]", "main", "-", "do_fsync"): 5_000_000}))
    top = subprocess.run([go, "tool", "pprof", "-top", profile], capture_output=True, text=True, check=False)
    assert re.search(r"5ms\s+100%\s+100%\s+5ms\s+100%\s+do_fsync", top.stdout), top
