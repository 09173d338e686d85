"""The agent needs its two capabilities, both, and without one it says so instead of crashing."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import Cluster, wait_for
from tests.e2e.bench.workload import Workload
from tests.e2e.probes import conditions, latency_probe, sole_agent

pytestmark = pytest.mark.e2e

AGENT = "latencyprobe-agent"


@pytest.fixture(params=["BPF", "PERFMON"])
def only_capability(request: pytest.FixtureRequest, release: Chart, cluster: Cluster) -> Iterator[str]:
    """Agents get just this one."""
    path = "/spec/template/spec/containers/0/securityContext/capabilities/add"
    patch = json.dumps([{"op": "replace", "path": path, "value": [request.param]}])
    cluster.kubectl("patch", "daemonset", AGENT, "-n", release.agents, "--type=json", "-p", patch)
    yield request.param
    cluster.delete("daemonset", AGENT, release.agents)  # Helm would not overwrite a field that somebody else set


def test_agent_with_a_capability_too_few_stays_up_and_says_which(
    release: Chart, cluster: Cluster, workload: Workload, only_capability: str
) -> None:
    workload.serve(node="n2")
    cluster.apply(latency_probe(clients={"scope": "None"}), workload.namespace)

    named = {"BPF": "CAP_PERFMON", "PERFMON": "CAP_BPF"}[only_capability]
    # for a moment the node is still known by what the agent before said of itself
    wait_for(lambda: refused(cluster, workload.namespace, named), f"the condition names {named}")
    (pod,) = wait_for(lambda: sole_agent(release), "the agents before it are gone")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def refused(cluster: Cluster, namespace: str, capability: str) -> bool:
    status, reason, message = conditions(cluster, namespace).get("ProbesReady", ("", "", ""))
    return (status, reason) == ("False", "MissingCapability") and capability in message
