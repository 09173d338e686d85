"""The bench itself: is it a Kubernetes that a product can be tested in?"""

import pytest

from tests.e2e.bench.cluster import Cluster
from tests.e2e.bench.workload import PORT, Workload

pytestmark = pytest.mark.e2e


def test_both_nodes_are_ready(cluster: Cluster) -> None:
    nodes = {
        node["metadata"]["name"]: {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"]
        for node in cluster.items("nodes")
    }

    assert dict.fromkeys(cluster.nodes, "True") == nodes


def test_a_pod_reaches_a_service_on_the_other_node_by_name(workload: Workload) -> None:
    workload.serve(node="n2")

    result = workload.call(50, "--threads", "2", node="n1")

    assert (50, 0) == (result["answered"], result["errors"])


def test_the_delay_of_running_servers_can_be_changed(workload: Workload) -> None:
    workload.serve(replicas=2)

    workload.delay(500)
    slow = workload.call(20, name="slow")
    workload.delay(0)
    fast = workload.call(20, name="fast")

    assert slow["slowest_us"] >= 500_000
    assert slow["seconds"] > fast["seconds"]


def test_this_machine_reaches_services_and_pods_run_on_their_own_node(cluster: Cluster, workload: Workload) -> None:
    workload.serve(node="n2")

    (pod,) = cluster.pods(workload.namespace)
    sockets = cluster.in_node("n2", "ss", "-tln")

    assert ("n2", True) == (pod["spec"]["nodeName"], pod["status"]["podIP"].startswith("10.244.2."))
    assert str(PORT) not in sockets, "a pod's socket is in the pod's own network namespace"
