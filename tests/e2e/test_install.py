"""The installed chart on a real API server: who may do what, what is open, and what an upgrade keeps."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.e2e.bench.chart import Chart
from tests.e2e.bench.cluster import PATIENCE_S, Cluster, RefusedError, wait_for
from tests.e2e.probes import nothing_measured, sole_agent

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]

GOLDEN = yaml.safe_load((Path(__file__).parents[1] / "data/operator_rbac.yaml").read_text())
OPERATOR = "system:serviceaccount:latencyprobe:latencyprobe-operator"
AGENT = "system:serviceaccount:latencyprobe-agents:latencyprobe-agent"
API_SERVER = "https://10.211.0.11:6443"
MEASURE = "latencyprobe.dev/measure"
TOKEN = "/var/run/secrets/latencyprobe/token"
AGENT_PROCESS = """
from pathlib import Path
commands = Path("/proc").glob("[0-9]*/cmdline")
print(*(file.parent.name for file in commands if file.read_bytes().endswith(b"\\0agent\\0")))
"""


def rights(cluster: Cluster, user: str, namespace: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) that the API server's authorizer grants, less what every account may ask about itself."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    words = ("create", "--as", user, "-o", "json", "--validate=false", "-f", "-")
    answer = cluster.kubectl(*words, stdin=json.dumps(review))
    status = json.loads(answer)["status"]
    assert not status["incomplete"]
    return {right for right in expand(status["resourceRules"]) if not right[1].startswith("selfsubject")}


def expand(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource + "".join(f"/{name}" for name in rule.get("resourceNames", ())), verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture
def agent(release: Chart, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """An agent that runs because of a LatencyProbe for the operator's own pod."""
    probe = {
        "apiVersion": "latencyprobe.dev/v1alpha1",
        "kind": "LatencyProbe",
        "metadata": {"name": "itself"},
        "spec": {"targets": [{"name": "directory", "ports": [8443]}], "clients": {"scope": "None"}},
    }
    cluster.apply(probe, release.namespace)
    (pod,) = wait_for(lambda: sole_agent(release), "its agent runs, and no other")
    cluster.wait_for_rollout("daemonset/latencyprobe-agent", release.agents)
    yield pod
    cluster.delete("latencyprobe", "itself", release.namespace)
    wait_for(lambda: nothing_measured(release), "it has ended, and no test takes it for the next one")


def test_operator_has_exactly_the_rights_of_the_golden_list(release: Chart, cluster: Cluster) -> None:
    expected = expand(GOLDEN["clusterRules"]) | expand(GOLDEN["namespaceRules"])

    assert rights(cluster, OPERATOR, release.namespace) == expected


def test_agents_have_no_rights(release: Chart, cluster: Cluster) -> None:
    assert rights(cluster, AGENT, release.agents) == set()


def test_operator_may_change_only_its_own_label_of_a_node(release: Chart, cluster: Cluster) -> None:
    # RBAC grants everything here, so that only the admission policy can refuse
    as_operator = ("--as", OPERATOR, "--as-group=system:masters", "--dry-run=server", "-p")
    allowed = {"metadata": {"labels": {MEASURE: "true"}}}
    refused = [
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {MEASURE: "true", "kubernetes.io/hostname": None}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    ]

    cluster.kubectl("patch", "node", "n1", *as_operator, json.dumps(allowed))
    for patch in refused:
        with pytest.raises(RefusedError, match=r"may change the label .* of a node and nothing else"):
            cluster.kubectl("patch", "node", "n1", *as_operator, json.dumps(patch))


def test_operator_would_be_admitted_by_the_restricted_level(release: Chart, cluster: Cluster) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"

    cluster.kubectl("label", "namespace", release.namespace, level, "--dry-run=server", "--warnings-as-errors")


def test_token_of_an_agent_is_worth_nothing_to_the_api_server(
    agent: dict[str, Any], release: Chart, cluster: Cluster
) -> None:
    token = read(cluster, agent, TOKEN)

    answer = requests.get(f"{API_SERVER}/api", headers={"Authorization": f"Bearer {token}"}, verify=False, timeout=10)

    assert answer.status_code == 401


def test_agent_is_held_to_its_own_system_calls_and_gets_no_further_rights(
    agent: dict[str, Any], release: Chart, cluster: Cluster
) -> None:
    """Who runs something else in its container, as here, is not: that takes rights to exec."""

    def filters(process: str) -> int:
        told = read(cluster, agent, f"/proc/{process}/status")
        status = dict(line.split(":", 1) for line in told.splitlines())
        assert status["NoNewPrivs"].strip() == "1"
        return int(status["Seccomp_filters"])

    of_agent = inside(cluster, agent, AGENT_PROCESS).strip()
    assert filters(of_agent) == filters("self") + 1


def test_directory_tells_nothing_but_its_health_without_a_token(release: Chart, cluster: Cluster) -> None:
    directory = f"https://{cluster.service_ip('latencyprobe-directory', release.namespace)}:8443"

    def get(path: str, token: str = "") -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return requests.get(directory + path, headers=headers, verify=False, timeout=10)

    for path in ("/healthz", "/readyz"):
        assert (200, True) == (get(path).status_code, len(get(path).content) <= 64)
    for path in ("/metrics", "/v1/nodes/n1/plan"):
        assert get(path).status_code == 401
        assert get(path, "nonsense").status_code == 401
    stranger = cluster.kubectl("create", "token", "default", "--audience=latencyprobe-directory").strip()
    assert get("/v1/nodes/n1/plan", stranger).status_code == 403


def test_agent_of_a_node_is_refused_the_plan_of_another(
    agent: dict[str, Any], release: Chart, cluster: Cluster
) -> None:
    headers = {"Authorization": "Bearer " + read(cluster, agent, TOKEN)}
    directory = f"https://{cluster.service_ip('latencyprobe-directory', release.namespace)}:8443"
    status = {}
    for node in cluster.nodes:
        url = f"{directory}/v1/nodes/{node}/plan"
        with requests.get(url, headers=headers, verify=False, timeout=10, stream=True) as answer:
            status[node] = answer.status_code

    assert status == {node: 200 if node == agent["spec"]["nodeName"] else 403 for node in cluster.nodes}


@pytest.mark.parametrize(("component", "ports"), [("operator", {8443}), ("agent", {8081})])
def test_no_other_port_is_open(
    agent: dict[str, Any], release: Chart, cluster: Cluster, component: str, ports: set[int]
) -> None:
    namespace = release.agents if component == "agent" else release.namespace
    (pod,) = cluster.pods(namespace, f"app.kubernetes.io/component={component}")

    tables = read(cluster, pod, "/proc/net/tcp") + read(cluster, pod, "/proc/net/tcp6")

    assert listening(tables) == ports


def test_agents_hear_their_own_canary(agent: dict[str, Any], release: Chart, cluster: Cluster) -> None:
    def heard() -> bool:
        log = cluster.logs(agent["metadata"]["name"], release.agents)
        assert "SilentHookError" not in log
        return "canary: the kernel tells of every event" in log

    wait_for(heard, "the agent is told of its own connection")


def test_images_hold_no_shell_and_no_program_but_python(
    agent: dict[str, Any], release: Chart, cluster: Cluster
) -> None:
    (operator,) = cluster.pods(release.namespace, "app.kubernetes.io/component=operator")
    for pod in (agent, operator):
        programs = inside(cluster, pod, "import os; print(*os.listdir('/usr/bin'), *os.listdir('/usr/sbin'))").split()
        assert [name for name in programs if not name.startswith("python3")] == []
        with pytest.raises(RefusedError, match="executable file not found"):
            cluster.exec(pod["metadata"]["name"], "sh", namespace=pod["metadata"]["namespace"])


def test_images_know_the_authorities_that_debian_trusts(
    agent: dict[str, Any], release: Chart, cluster: Cluster
) -> None:
    """As whoever sends to https:// without an authority of its own has them."""
    (operator,) = cluster.pods(release.namespace, "app.kubernetes.io/component=operator")
    look = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    for pod in (agent, operator):
        assert int(inside(cluster, pod, look)) > 100


def test_what_agent_and_operator_keep_is_read_by_nobody_else(
    agent: dict[str, Any], release: Chart, cluster: Cluster
) -> None:
    """Their files in volumes that they may write to."""
    (operator,) = cluster.pods(release.namespace, "app.kubernetes.io/component=operator")
    for pod in (agent, operator):
        volumes = f"/var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir"
        look = ("find", volumes, "-type", "f", "-printf", "%m %f\n")
        files = cluster.in_node(pod["spec"]["nodeName"], *look).splitlines()
        assert any(file.endswith(".db") for file in files), files
        assert [file for file in files if not file.startswith("600 ")] == []


def inside(cluster: Cluster, pod: dict[str, Any], program: str) -> str:
    """What a Python program prints in a pod of ours: there is no other there."""
    return cluster.exec(pod["metadata"]["name"], "python3", "-c", program, namespace=pod["metadata"]["namespace"])


def read(cluster: Cluster, pod: dict[str, Any], path: str) -> str:
    return inside(cluster, pod, f"print(open({path!r}).read(), end='')")


def listening(tables: str) -> set[int]:
    """Ports that are open beyond loopback, from /proc/net/tcp and tcp6 (state 0A; addresses are host-order words)."""
    loopback = {socket.inet_aton("127.0.0.1")[::-1].hex().upper(), "00000000000000000000000001000000"}
    fields = [line.split() for line in tables.splitlines() if ":" in line]
    return {
        int(row[1].partition(":")[2], 16)
        for row in fields
        if row[3] == "0A" and row[1].partition(":")[0] not in loopback
    }


def test_upgrade_keeps_certificate_and_pairing_key(release: Chart, cluster: Cluster) -> None:
    def secrets() -> dict[str, Any]:
        names = ("latencyprobe-tls", "latencyprobe-pair")
        return {name: (cluster.get("secret", name, release.namespace) or {})["data"] for name in names}

    before = secrets()
    release.install({"operator": {"resources": {"requests": {"cpu": "60m"}}}})

    assert secrets() == before
    assert sorted(before["latencyprobe-tls"]) == ["ca.crt", "tls.crt", "tls.key"]
    authority = (cluster.get("configmap", "latencyprobe-ca", release.agents) or {})["data"]
    assert authority["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


def test_helm_test_passes(release: Chart) -> None:
    release.helm("test", release.release, f"--timeout={PATIENCE_S}s")
