"""The whole agent as a node has it: `latencyprobe agent` in a process of its own, with its defaults.

Its plan comes from, and its counts go to, a stand-in for the operator's directory over TLS; spans and metrics go to a
sink. It measures examples/redis.yaml with the port of the load. Where others want the processor too it has the share of
it that an agent's pod has, if this machine has such cgroups.
"""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError

from benchmarks.builds import OBJECTS, ROOT
from benchmarks.directory import Directory, directory
from benchmarks.machine import LOAD_CPU, agents_share
from benchmarks.processes import started
from benchmarks.sink import Sink, sink
from latencyprobe import parsing
from latencyprobe.plan import NodePlan
from latencyprobe_agent.identity.local import local_plan, pairing_key
from tests.support.ports import free_port

_NODE = "bench"
_SETTLE_S = 1.0  # for what it loads only once it measures
_COMMAND = Path(sys.executable).with_name("latencyprobe")
_SOURCES = ROOT / "latencyprobe", ROOT / "probe-image"


@dataclass(frozen=True)
class NodeAgent:
    """A running agent. What it has counted is in `directory` once it has ended."""

    pid: int
    directory: Directory
    sink: Sink


@contextmanager
def node_agent(port: int, *, every_record: bool = False, keep_spans: bool = False) -> Iterator[NodeAgent]:
    """Start the agent beside the load, wait until it measures, end it. `every_record`: no limit of records."""
    health = free_port()
    with TemporaryDirectory() as name, sink(keep_spans) as collector:
        folder = Path(name)
        with directory(_plan(port, folder), folder) as (server, ca_file):
            (folder / "token").write_text("bench")
            env = {
                "LATENCYPROBE_DIRECTORY": server.url,
                "LATENCYPROBE_NODE": _NODE,
                "LATENCYPROBE_TOKEN_FILE": str(folder / "token"),
                "LATENCYPROBE_CA_FILE": str(ca_file),
                "LATENCYPROBE_STATE_DIR": str(folder / "state"),
                "LATENCYPROBE_HEALTH_PORT": str(health),
                "LATENCYPROBE_BPF_DIR": str(OBJECTS),
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                **({"LATENCYPROBE_RECORDS_PER_SECOND": "0"} if every_record else {}),
            }
            # as images and wheels have it: what compiling takes stays in the process
            subprocess.run((sys.executable, "-m", "compileall", "-q", *_SOURCES), check=True)
            words = (_COMMAND, "agent")
            log = OBJECTS.parent / "bench" / "agent.log"
            with (
                agents_share() as share,
                started(*words, cpu=LOAD_CPU, log=log, env=env, ready=lambda _: _measures(health)) as pid,
            ):
                if share is not None:
                    (share / "cgroup.procs").write_text(str(pid))
                time.sleep(_SETTLE_S)
                yield NodeAgent(pid, server, collector)


def _plan(port: int, folder: Path) -> NodePlan:
    file = folder / "probe.yaml"
    file.write_text((ROOT / "examples" / "redis.yaml").read_text().replace("6379", str(port)))
    return local_plan(parsing.load_file(file), _NODE, pairing_key(None)).plan


def _measures(health_port: int) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{health_port}/readyz", timeout=5).status == 200)
    except (URLError, OSError):
        return False
