import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from latencyprobe_operator import cleanup
from latencyprobe_operator.config import Config

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]
Render = Callable[..., Any]

GOLDEN = REPOSITORY / "tests" / "data" / "operator_rbac.yaml"


def component_of(manifest: Any) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def pods(manifests: Any) -> dict[str, Any]:
    """All pods that run the operator's image, by component."""
    return {
        "operator": manifests.one("Deployment")["spec"]["template"]["spec"],
        "cleanup": manifests.one("Job")["spec"]["template"]["spec"],
        "test": manifests.one("Pod")["spec"],
    }


@pytest.mark.parametrize("component", ["operator", "cleanup", "test"])
def test_pod_is_admitted_by_the_restricted_level(manifests: Any, component: str) -> None:
    pod = pods(manifests)[component]
    container = pod["containers"][0]

    assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 65532}.items()
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert [volume for volume in pod.get("volumes", []) if "hostPath" in volume] == []


def test_one_writer_of_the_store(manifests: Any) -> None:
    spec = manifests.one("Deployment")["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize(
    ("component", "of_cluster", "of_namespace"),
    [("operator", "clusterRules", "namespaceRules"), ("cleanup", "cleanupClusterRules", "cleanupNamespaceRules")],
)
def test_rights_are_the_golden_list(manifests: Any, component: str, of_cluster: str, of_namespace: str) -> None:
    golden = yaml.safe_load(GOLDEN.read_text().replace("AGENTS", "lp-agents"))

    assert manifests.one("ClusterRole", component)["rules"] == golden[of_cluster]
    assert manifests.one("Role", component)["rules"] == golden[of_namespace]


def test_rights_name_no_secret_no_workload_and_no_wildcard(manifests: Any) -> None:
    rules = [rule for m in manifests if m["kind"] in {"ClusterRole", "Role"} for rule in m["rules"]]
    resources = {resource for rule in rules for resource in rule["resources"]}
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    writable = {r for rule in rules for r in rule["resources"] if {"create", "update", "delete"} & set(rule["verbs"])}

    assert "*" not in resources | verbs | {group for rule in rules for group in rule["apiGroups"]}
    assert not {"secrets", "configmaps", "pods/exec", "clusterroles", "roles"} & resources
    assert not {"escalate", "bind", "impersonate", "deletecollection"} & verbs
    assert writable <= {"latencyreports", "leases", "events", "tokenreviews", "subjectaccessreviews"}


def test_node_patches_are_held_to_the_one_label(manifests: Any) -> None:
    policy = manifests.one("ValidatingAdmissionPolicy")
    binding = manifests.one("ValidatingAdmissionPolicyBinding")

    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert "system:serviceaccount:watch:lp-latencyprobe-operator" in policy["spec"]["matchConditions"][0]["expression"]


def test_lease_belongs_to_the_release_and_not_to_the_operator(manifests: Any) -> None:
    lease = manifests.one("Lease")
    rule = next(rule for rule in manifests.one("Role", "operator")["rules"] if rule["resources"] == ["leases"])

    assert "spec" not in lease, "an upgrade would take the Lease away from its holder"
    assert rule["resourceNames"] == [lease["metadata"]["name"]]
    assert "create" not in rule["verbs"]


def test_clean_up_runs_when_everything_is_deleted_and_says_why_it_failed(manifests: Any) -> None:
    job = manifests.one("Job")

    assert job["metadata"]["annotations"] == {
        "helm.sh/hook": "post-delete",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        "helm.sh/hook-output-log-policy": "hook-failed",
    }
    assert pods(manifests)["cleanup"]["containers"][0]["args"] == ["operator", "--cleanup"]


def test_clean_up_needs_nothing_that_is_deleted_before_it(render: Render) -> None:
    own = [m for m in render() if component_of(m) == "cleanup" and m["kind"] != "Job"]
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy"}
    annotations = {
        "helm.sh/hook": "post-delete",
        "helm.sh/hook-weight": "-1",  # before the Job
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
    pod = pods(render())["cleanup"]

    assert {m["kind"] for m in own} == kinds
    assert [m["metadata"]["annotations"] for m in own] == [annotations] * len(own)
    assert pod["serviceAccountName"] in {m["metadata"]["name"] for m in own}
    assert "volumes" not in pod


def test_clean_up_whose_helm_was_killed_ends_and_goes_by_itself(manifests: Any) -> None:
    spec = manifests.one("Job")["spec"]

    assert spec["activeDeadlineSeconds"] > cleanup.TIMEOUT_S
    assert "ttlSecondsAfterFinished" in spec


def test_probes_ask_the_directory(manifests: Any) -> None:
    container = pods(manifests)["operator"]["containers"][0]
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}

    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def test_history_is_kept_on_a_claim(manifests: Any) -> None:
    claim = manifests.one("PersistentVolumeClaim")["metadata"]["name"]
    volumes = pods(manifests)["operator"]["volumes"]

    assert {"name": "store", "persistentVolumeClaim": {"claimName": claim}} in volumes


def test_existing_claim_is_used_instead(render: Render) -> None:
    manifests = render(persistence={"existingClaim": "mine"})

    assert [m for m in manifests if m["kind"] == "PersistentVolumeClaim"] == []
    assert {"name": "store", "persistentVolumeClaim": {"claimName": "mine"}} in pods(manifests)["operator"]["volumes"]


def test_operator_is_told_that_its_store_is_ephemeral(manifests: Any, render: Render) -> None:
    ephemeral = render(persistence={"enabled": False})
    told = {"name": "LATENCYPROBE_STORE_EPHEMERAL", "value": "true"}

    assert told in pods(ephemeral)["operator"]["containers"][0]["env"]
    assert told not in pods(manifests)["operator"]["containers"][0]["env"]
    assert [m for m in ephemeral if m["kind"] == "PersistentVolumeClaim"] == []


def test_operator_knows_at_which_size_of_its_store_it_would_be_evicted(manifests: Any, render: Render) -> None:
    def told(rendered: Any) -> int | None:
        environment = pods(rendered)["operator"]["containers"][0]["env"]
        return Config.from_environment({one["name"]: one["value"] for one in environment}).store_limit_bytes

    assert told(render(persistence={"enabled": False, "size": "1.5Gi"})) == 1_610_612_736
    assert told(manifests) is None, "a full volume is told, and evicts nobody"


def test_suspending_all_agents_is_told_to_the_operator_which_takes_them_away(manifests: Any, render: Render) -> None:
    told = {"name": "LATENCYPROBE_SUSPEND", "value": "true"}
    assert told in pods(render(agent={"suspend": True}))["operator"]["containers"][0]["env"]
    assert told not in pods(manifests)["operator"]["containers"][0]["env"]


def test_operator_knows_what_taints_the_agents_tolerate(manifests: Any, render: Render) -> None:
    def told(rendered: Any) -> Any:
        environment = pods(rendered)["operator"]["containers"][0]["env"]
        return json.loads(next(one["value"] for one in environment if one["name"] == "LATENCYPROBE_AGENT_TOLERATIONS"))

    tolerations = [{"key": "dedicated", "operator": "Equal", "value": 'a "b"', "effect": "NoSchedule"}]
    for rendered in (manifests, render(agent={"tolerations": tolerations}), render(agent={"tolerations": []})):
        assert told(rendered) == rendered.one("DaemonSet")["spec"]["template"]["spec"]["tolerations"]


def test_network_policy_lets_in_only_agents(render: Render) -> None:
    scraper = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    agents = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "lp-agents"}}}

    policy = render().one("NetworkPolicy", "operator")["spec"]
    assert policy["ingress"] == [{"from": [agents], "ports": [{"port": 8443}]}]
    assert policy["policyTypes"] == ["Ingress"]
    assert "egress" not in policy
    policy = render(networkPolicy={"metricsFrom": [scraper], "egress": True}).one("NetworkPolicy", "operator")["spec"]
    assert policy["ingress"] == [{"from": [agents, scraper], "ports": [{"port": 8443}]}]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [{p["port"] for p in rule["ports"]} for rule in policy["egress"]] == [{53, 5353}, {443, 6443}]


@pytest.mark.parametrize("component", ["operator", "agent", "cleanup"])
def test_names_are_resolved_at_both_ports_and_by_both_protocols_of_dns(render: Render, component: str) -> None:
    """A CNI looks at the pod's port, which is 5353 on OpenShift."""
    policy = render(networkPolicy={"egress": True}).one("NetworkPolicy", component)["spec"]
    dns = [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]
    assert policy["egress"][0] == {"ports": dns}


def test_the_shared_store_is_told_with_its_token_and_authority(manifests: Any, render: Render) -> None:
    shared = {
        "url": "https://mimir.monitoring:8443/prometheus",
        "headers": {"X-Scope-OrgID": "team a,b=c", "X-Other": "1"},
        "tokenSecret": "reader",
        "caConfigMap": "authority",
        "timeoutSeconds": 2.5,
    }
    rendered = render(slo={"store": "prometheus", "prometheus": shared}, networkPolicy={"egress": True})
    pod = pods(rendered)["operator"]
    container, volumes = pod["containers"][0], {volume["name"]: volume for volume in pod["volumes"]}
    environment = {one["name"]: one["value"] for one in container["env"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    config = Config.from_environment(environment).shared_store

    assert config is not None
    assert (config.url, config.timeout_s) == (shared["url"], 2.5)
    assert config.headers == shared["headers"]
    assert str(config.token_file) == f"{mounts['prometheus-token']}/token"
    assert str(config.ca_file) == f"{mounts['prometheus-ca']}/ca.crt"
    assert volumes["prometheus-token"]["secret"]["secretName"] == "reader"
    assert volumes["prometheus-ca"]["configMap"]["name"] == "authority"
    assert {"ports": [{"port": 8443}]} in rendered.one("NetworkPolicy", "operator")["spec"]["egress"]
    own = {one["name"]: one.get("value") for one in pods(manifests)["operator"]["containers"][0]["env"]}
    assert Config.from_environment(own).shared_store is None, "a URL alone switches nothing"
