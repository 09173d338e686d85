"""The agent needs its two capabilities, both, and without one it says so instead of crashing."""

import json

import pytest
from bench.chart import Chart
from bench.cluster import Cluster, wait_for
from bench.workload import Workload
from probes import conditions, latency_probe

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("left", ["BPF", "PERFMON"])
def test_agent_with_one_capability_too_few_stays_up_and_says_what_is_missing(
    release: Chart, cluster: Cluster, workload: Workload, left: str
) -> None:
    path = "/spec/template/spec/containers/0/securityContext/capabilities/add"
    patch = [{"op": "replace", "path": path, "value": [left]}]
    cluster.kubectl(
        "patch", "daemonset", "latencyprobe-agent", "-n", release.agents, "--type=json", "-p", json.dumps(patch)
    )
    workload.serve(node="n2")
    cluster.apply(latency_probe(clients={"scope": "None"}), workload.namespace)

    refused = ("False", "MissingCapability")
    wait_for(lambda: conditions(cluster, workload.namespace).get("ProbesReady", ())[:2] == refused, 30, f"{refused}")
    message = conditions(cluster, workload.namespace)["ProbesReady"][2]
    (pod,) = cluster.pods(release.agents)

    assert {"BPF": "CAP_PERFMON", "PERFMON": "CAP_BPF"}[left] in message
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
