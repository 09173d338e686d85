"""`helm uninstall`, then `helm install` at once: the new release measures, whatever was cut short before.

REINSTALLS=10 in the environment makes the cycle as long as that.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.bench.chart import CHART, Chart
from tests.e2e.bench.cluster import Cluster, RefusedError, wait_for
from tests.e2e.bench.workload import Workload
from tests.e2e.probes import agent_nodes, is_true, labelled_nodes, latency_probe

pytestmark = pytest.mark.e2e

REINSTALLS = int(os.environ.get("REINSTALLS", "3"))
MOMENTS_S = {"install": 1.5, "uninstall": 10.0}  # about as long as they take
CLEANUP = "app.kubernetes.io/component=cleanup"

# What each cycle goes through: a signal to `helm uninstall`, one to `helm install`, and what else ends.
HARDSHIPS: list[tuple[signal.Signals | None, signal.Signals | None, str]] = [
    (None, None, ""),
    (signal.SIGKILL, signal.SIGKILL, "operator"),
    (signal.SIGINT, signal.SIGINT, "clean-up"),
    (signal.SIGKILL, signal.SIGINT, ""),
    (None, signal.SIGKILL, "clean-up"),
]


@pytest.fixture
def values(chart: Chart, tmp_path: Path) -> Path:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(chart.values()))
    return file


@pytest.fixture
def measured(release: Chart, cluster: Cluster, workload: Workload) -> str:
    """A namespace whose servers and clients are being measured on both nodes."""
    workload.serve(node="n2")
    workload.load(node="n1")
    see_it_measured(release, workload.namespace)
    return workload.namespace


@pytest.fixture
def held_namespace(measured: str, release: Chart, cluster: Cluster) -> Iterator[str]:
    """The agents' namespace, which does not go because of a finalizer in it."""
    held = {"name": "held", "finalizers": ["example.com/held"]}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held}, release.agents)
    yield release.agents
    let_go(cluster, release.agents)


def let_go(cluster: Cluster, namespace: str) -> None:
    """End what holds the namespace, and wait until it is gone if it is going."""
    if cluster.get("configmap", "held", namespace):
        no_finalizer = json.dumps({"metadata": {"finalizers": None}})
        cluster.kubectl("patch", "configmap", "held", "-n", namespace, "--type=merge", "-p", no_finalizer)
    wait_for(lambda: is_gone_or_stays(cluster, namespace), "the namespace is gone")


def is_gone_or_stays(cluster: Cluster, namespace: str) -> bool:
    found = cluster.get("namespace", namespace)
    return found is None or "deletionTimestamp" not in found["metadata"]


@pytest.mark.parametrize("cycle", range(REINSTALLS))
def test_new_release_measures_right_after_the_old_one(
    measured: str, release: Chart, cluster: Cluster, values: Path, cycle: int
) -> None:
    to_uninstall, to_install, ended = HARDSHIPS[cycle % len(HARDSHIPS)]
    if ended == "operator":
        cluster.kubectl("scale", "deployment/latencyprobe-operator", "-n", release.namespace, "--replicas=0")
    if to_uninstall:
        cut_short(release, to_uninstall, "uninstall", release.release)

    began = time.monotonic()
    uninstall(release, without_clean_up=ended == "clean-up")
    gone = time.monotonic()
    if to_install:
        cut_short(release, to_install, *install_words(release, values))
        uninstall(release)
    installing = time.monotonic()
    release.helm(*install_words(release, values))
    installed = time.monotonic()
    see_it_measured(release, measured)

    print(
        f"uninstalled in {gone - began:.1f} s, installed in {installed - installing:.1f} s, "
        f"measures {time.monotonic() - installed:.1f} s later"
    )


def test_release_that_is_not_gone_yet_is_named_and_the_same_command_works_later(
    held_namespace: str, measured: str, release: Chart, cluster: Cluster, values: Path
) -> None:
    release.helm("uninstall", release.release, "--no-hooks")

    for _ in range(2):  # a release that failed half way would have taken the name
        with pytest.raises(RefusedError, match=f"Namespace {held_namespace} .*is being deleted since .*same command"):
            release.helm(*install_words(release, values))
    let_go(cluster, held_namespace)
    release.helm(*install_words(release, values))

    see_it_measured(release, measured)


def test_late_clean_up_takes_nothing_from_the_next_release(measured: str, release: Chart, cluster: Cluster) -> None:
    hooks = [one for one in yaml.safe_load_all(release.helm("get", "hooks", release.release)) if is_clean_up(one)]
    job = next(one for one in hooks if one["kind"] == "Job")["metadata"]["name"]
    agents = {pod["metadata"]["uid"] for pod in cluster.pods(release.agents)}

    cluster.apply(hooks, release.namespace)
    try:
        wait_for(lambda: has_failed(cluster.get("job", job, release.namespace)), "the clean-up gives up")
        assert "LatencyProbe is installed in namespace latencyprobe" in cluster.logs(f"job/{job}", release.namespace)
    finally:
        for one in hooks:
            cluster.delete(one["kind"], one["metadata"]["name"], release.namespace)

    assert labelled_nodes(cluster) == {"n1", "n2"}
    assert {pod["metadata"]["uid"] for pod in cluster.pods(release.agents)} == agents
    assert is_true(cluster, measured, "Measuring")


def test_probes_that_were_kept_are_measured_by_the_next_release(
    measured: str, release: Chart, cluster: Cluster
) -> None:
    release.install({"crds": {"keep": True}})
    uninstall(release)
    assert (labelled_nodes(cluster), agent_nodes(release)) == (set(), set())

    release.install()

    wait_for(lambda: agent_nodes(release) == {"n1", "n2"}, "agents come")
    wait_for(lambda: is_true(cluster, measured, "Measuring"), "it is measured")


def see_it_measured(release: Chart, namespace: str) -> None:
    """A LatencyProbe goes with its CRD, so every new release is given it anew."""
    wait_for(lambda: release.cluster.apply(latency_probe(), namespace), "the API server knows LatencyProbes")
    wait_for(lambda: is_true(release.cluster, namespace, "Measuring"), "it is measured")
    wait_for(lambda: len(release.cluster.pods(release.agents)) == 2, "an agent runs on each node")
    assert labelled_nodes(release.cluster) == {"n1", "n2"}


def install_words(release: Chart, values: Path) -> tuple[str, ...]:
    return ("install", release.release, str(CHART), "--create-namespace", "--values", str(values))


def cut_short(release: Chart, sent: signal.Signals, *words: str) -> None:
    """Run helm and send it a signal at a random moment."""
    moment_s = random.uniform(0, MOMENTS_S[words[0]])
    with subprocess.Popen(release.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as helm:
        try:
            helm.wait(moment_s)
            print(f"helm {words[0]} was quicker than {moment_s:.1f} s")
        except subprocess.TimeoutExpired:
            helm.send_signal(sent)
            print(f"helm {words[0]} got {sent.name} after {moment_s:.1f} s")


def uninstall(release: Chart, *, without_clean_up: bool = False) -> None:
    """`helm uninstall`, also after one that was cut short when it was done; meanwhile the clean-up may be killed."""
    words = ("uninstall", release.release, "--ignore-not-found")
    with subprocess.Popen(release.command(*words), stderr=subprocess.PIPE, text=True) as helm:
        if without_clean_up:
            wait_for(lambda: helm.poll() is not None or clean_up_pods(release), "it cleans up")
            release.cluster.kubectl("delete", "pod", "-n", release.namespace, "-l", CLEANUP, "--force")
        _, complaint = helm.communicate(timeout=200)
    assert helm.returncode == 0, complaint


def clean_up_pods(release: Chart) -> list[dict[str, Any]]:
    return release.cluster.pods(release.namespace, CLEANUP)


def is_clean_up(manifest: dict[str, Any]) -> bool:
    return bool(manifest["metadata"]["labels"]["app.kubernetes.io/component"] == "cleanup")


def has_failed(job: dict[str, Any] | None) -> bool:
    found = (job or {}).get("status", {}).get("conditions", [])
    return ("Failed", "True") in {(one["type"], one["status"]) for one in found}
