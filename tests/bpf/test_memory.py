"""Programs whose maps do not fit into the memory that this process may have."""

import subprocess
import sys
from pathlib import Path

import pytest

from latencyprobe_agent.kernel import attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.table import TASKS
from tests.support.cgroups import own_cgroup

pytestmark = pytest.mark.root

OBJECTS = Path(__file__).parents[2] / "build" / "bpf"
MIB = 1 << 20
LOAD = f"""
import sys
from pathlib import Path
from latencyprobe.errors import Unsupported
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.table import TASKS

sys.stdin.readline()
for size in (256, 8):
    try:
        with EvidencePrograms.alone(Path({str(OBJECTS)!r}), TASKS, Filter(), ring_bytes=size << 20):
            print("attached")
    except Unsupported as error:
        print(error.reason, str(error).splitlines()[0])
"""


def test_memory_that_is_missing_is_named_with_its_remedy_and_takes_nothing() -> None:
    with own_cgroup() as cgroup:
        cgroup.cap_memory(160 * MIB)
        with subprocess.Popen(
            [sys.executable, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            cgroup.join(child.pid)
            said, _ = child.communicate("go\n")
    refused, then = said.splitlines()
    assert refused.startswith("OutOfMemory no memory for maps and programs: raise the limit (agent.resources.limits")
    assert then == "attached"


def test_a_ring_does_not_grow_with_every_cpu_that_a_machine_might_get(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for cpus in (4, 512):
        monkeypatch.setattr(attached, "possible_cpus", lambda cpus=cpus: cpus)
        with EvidencePrograms.alone(OBJECTS, TASKS, Filter()) as programs:
            sizes.append(programs.ring_bytes // MIB)
    assert sizes == [8, 32]
