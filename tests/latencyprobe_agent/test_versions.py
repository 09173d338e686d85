"""The release before beside this one: its agents under this operator, and this one's agents under its operator."""

import asyncio
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.latencyprobe_agent.two_nodes import Host, cluster, slow_rpcs, two_hosts
from tests.support.releases import PREVIOUS, unpack_previous
from tests.support.waiting import until

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
ITS_OWN_TEST = "tests/latencyprobe_agent/test_remote_join.py"
# Given to the earlier release's pytest: what it is made of is imported, and what it starts shall be of this one.
# It knows no stages as child spans.
THIS_ONES_AGENTS = """
import os
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.support import otlp
everything = otlp.spans
otlp.spans = lambda bodies: [one for one in everything(bodies) if one[1].kind != Span.SPAN_KIND_INTERNAL]
def pytest_collection_finish():
    os.environ.pop("PYTHONPATH")
"""


@pytest.fixture(scope="module")
def previous() -> Path:
    """The tree of the release before, with its programs; made once, and kept beside what else is slow to make."""
    cache = Path(os.environ.get("LATENCYPROBE_CACHE", Path.home() / ".cache/latencyprobe"))
    tree = cache / f"release-{PREVIOUS[:12]}"
    if not (tree / "made").exists():
        unpack_previous(tree)
        subprocess.run(["make", "-C", tree, "bpf"], stdout=subprocess.DEVNULL, check=True)
        (tree / "made").touch()
    _install(tree)
    return tree


def _install(tree: Path) -> None:
    """Say where its commands are, as an installation does: they may have moved since."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    said = tree / f"{project['name']}-{project['version']}.dist-info"
    said.mkdir(exist_ok=True)
    (said / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, commands in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {at}" for name, at in commands.items())]
    (said / "entry_points.txt").write_text("\n".join(lines))


def modules_of(tree: Path) -> str:
    return ":".join(str(tree / folder) for folder in (".", "operator", "probe-image"))


@pytest.fixture
def hosts() -> Iterator[dict[str, Host]]:
    yield from two_hosts()


def test_agents_of_the_release_before_are_counted_and_joined_by_this_operator(
    previous: Path,
    hosts: dict[str, Host],
    tls_files: tuple[Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", modules_of(previous))
    monkeypatch.setenv("LATENCYPROBE_BPF_DIR", str(previous / "build/bpf"))

    async def scene() -> None:
        async with cluster(hosts, tls_files, tmp_path) as it:
            truth = await asyncio.to_thread(slow_rpcs, hosts, tmp_path / "log", 1_000, "server-sleep")

            async def counted() -> bool:
                row = await it.read_row()
                return row.good + row.bad >= len(truth) and row.coverage.joined >= 0.9 * row.bad

            await until(counted, "all are counted, slow ones joined", 60, seen=it.state, poll_s=0.2)
            assert len(truth) == it.row.good + it.row.bad
            assert it.row.bad >= 0.9 * len(truth) / 10
            assert not it.ingest.dropped

    asyncio.run(scene())


def test_this_ones_agents_are_counted_and_joined_by_the_operator_of_the_release_before(
    previous: Path, tmp_path: Path
) -> None:
    (tmp_path / "this_ones_agents.py").write_text(THIS_ONES_AGENTS)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{modules_of(previous)}:{tmp_path}",
        "LATENCYPROBE_BPF_DIR": str(ROOT / "build/bpf"),
    }
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "this_ones_agents", "-p", "no:cacheprovider"]
    words += [ITS_OWN_TEST, "-k", "server-sleep", f"--basetemp={tmp_path / 'its'}"]
    done = subprocess.run(words, cwd=previous, env=environment, capture_output=True, text=True, check=False)
    logs = "".join(log.read_text()[-2000:] for log in sorted((tmp_path / "its").rglob("n?.log")))
    assert "1 passed" in done.stdout, f"{done.stdout[-3000:]}\n{done.stderr[-1000:]}\n{logs}"
