"""`helm uninstall` leaves a cluster as if LatencyProbe had never been there."""

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.workload import Workload
from tests.e2e.kernel import held_by, still_there
from tests.e2e.probes import is_true, labelled_nodes, latency_probe

pytestmark = pytest.mark.e2e

# What Kubernetes itself puts into every namespace, and the memory of what happened.
ALWAYS_THERE = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
EVENTS = ("event/", "event.events.k8s.io/")


def test_uninstall_leaves_nothing(release: Chart, cluster: Cluster, workload: Workload) -> None:
    workload.serve(node="n2")
    workload.load(node="n1")
    cluster.apply(latency_probe(), workload.namespace)
    wait_for(lambda: is_true(cluster, workload.namespace, "Ready"), "it is measured on both nodes")
    held = [held_by(pod) for pod in cluster.pods(release.agents)]
    assert all(one["prog"] and one["link"] and one["map"] for one in held), "agents hold nothing: the test sees nothing"

    release.helm("uninstall", release.release, timeout_s=200)

    assert labelled_nodes(cluster) == set()
    assert cluster.get("namespace", release.agents) is None
    wait_for(lambda: not cluster.items("pods", release.namespace), "the clean-up's pod follows its Job")
    for namespaced in (True, False):
        assert objects(cluster, namespaced, "-A", "-l", "app.kubernetes.io/instance=latencyprobe") == set()
    assert objects(cluster, True, "-n", release.namespace) <= ALWAYS_THERE
    wait_for(lambda: not any(still_there(one) for one in held), "the kernel has let go of it all")


def objects(cluster: Cluster, namespaced: bool, *scope: str) -> set[str]:
    """Every object of every kind in the scope, events aside."""
    which = f"--namespaced={str(namespaced).lower()}"
    kinds = cluster.kubectl("api-resources", "--verbs=list,get", which, "-o", "name").split()
    found = cluster.kubectl("get", ",".join(kinds), *scope, "-o", "name", "--ignore-not-found")
    return {name for name in found.split() if not name.startswith(EVENTS)}
