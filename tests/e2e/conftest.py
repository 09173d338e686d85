"""Fixtures of the end-to-end tests: a real two-node cluster, a real Jaeger, the chart with images of this tree.

A cluster that is already up and healthy is used and left up (`tests/e2e/bench/bench up` keeps one while you work);
otherwise the session brings one up and takes it down at its end. A failed test leaves its artefacts in build/e2e/.
"""

import fcntl
import os
import re
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.bench import artefacts
from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import BENCH, Cluster, healthy
from tests.e2e.bench.jaeger import Jaeger, own_jaeger
from tests.e2e.bench.workload import Workload

ARTEFACTS = Path(__file__).parents[2] / "build/e2e"
left_behind: list[Path] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests come last, and their time limit starts when their fixtures are there: a first build takes minutes."""
    here = Path(__file__).parent
    items.sort(key=lambda item: here in item.path.parents)
    for item in items:
        if here in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200, func_only=True))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root: namespaces, mounts and cgroups of its own")
    subprocess.run([BENCH, "build"], check=True)
    with Path("/run/latencyprobe-e2e.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one session at a time: CRDs and nodes' labels are the whole cluster's
        ours = not healthy()
        subprocess.run([BENCH, "up"], check=True)
        yield Cluster()
        if ours:
            subprocess.run([BENCH, "down"], check=True)


@pytest.fixture(scope="session")
def jaeger(cluster: Cluster) -> Jaeger:
    """The Jaeger beside the cluster; all tests share it, so look for a namespace of your own in it."""
    return Jaeger()


@pytest.fixture(scope="session")
def standalone_jaeger() -> Iterator[Jaeger]:
    with own_jaeger() as jaeger:
        yield jaeger


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> str:
    """The tag under which both nodes have the project's images, built from this tree."""
    return subprocess.run([BENCH, "images"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture(scope="session")
def chart(cluster: Cluster, images: str, jaeger: Jaeger) -> Iterator[Chart]:
    """The release, not installed yet."""
    chart = Chart(cluster, tag=images, otlp=jaeger.otlp)
    chart.clear()
    yield chart
    try:
        chart.uninstall()
    finally:
        chart.clear()


@pytest.fixture
def release(chart: Chart) -> Chart:
    """The chart, installed and ready; a test may break it, the next one gets it mended."""
    chart.install()
    return chart


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, named after it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    with cluster.namespace(f"{words[:40]}-{os.urandom(2).hex()}".replace("--", "-")) as name:
        yield name


@pytest.fixture
def workload(cluster: Cluster, namespace: str) -> Workload:
    return Workload(cluster, namespace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(cluster := getattr(item, "funcargs", {}).get("cluster"), Cluster):
        folder = ARTEFACTS / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', item.name)}-{report.when}"
        artefacts.collect(cluster, folder)
        left_behind.append(folder)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for folder in left_behind:
        terminalreporter.write_line(f"cluster state and logs of the failed test: {folder}")
