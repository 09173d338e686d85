from collections.abc import Callable
from typing import Any

import pytest

from latencyprobe_agent.config import Config

pytestmark = pytest.mark.cluster

Render = Callable[..., Any]
LIMITS = ("LATENCYPROBE_RECORDS_PER_SECOND", "LATENCYPROBE_SPANS_PER_SECOND")


@pytest.fixture
def pod(manifests: Any) -> Any:
    return manifests.one("DaemonSet")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Any) -> Any:
    assert len(pod["containers"]) == 1
    assert not {"initContainers", "ephemeralContainers"} & pod.keys()
    return pod["containers"][0]


def environment(container: Any) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_kernel_rights_are_bpf_and_perfmon_and_nothing_else(pod: Any, container: Any) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON"]},
    }
    assert pod["securityContext"] == {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}


def test_no_namespace_of_the_host_is_shared(pod: Any) -> None:
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()


def test_no_container_is_process_1_to_which_an_early_signal_is_lost(render: Render) -> None:
    manifests = render()
    with_host = render(agent={"userStacks": True}).one("DaemonSet")["spec"]["template"]["spec"]

    for kind in ("DaemonSet", "Deployment", "Job"):
        assert manifests.one(kind)["spec"]["template"]["spec"]["shareProcessNamespace"] is True, kind
    assert "shareProcessNamespace" not in with_host  # the API server refuses both


def test_host_is_seen_through_one_read_only_cgroup_mount(pod: Any, container: Any) -> None:
    of_host = [volume for volume in pod["volumes"] if "hostPath" in volume]
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] == "cgroup"]

    assert of_host == [{"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}]
    assert [(m["mountPath"], m["readOnly"], m["recursiveReadOnly"]) for m in mounts] == [
        ("/host/cgroup", True, "IfPossible")
    ]


def test_only_token_is_for_the_directory(manifests: Any, pod: Any) -> None:
    tokens = [
        source["serviceAccountToken"]["audience"]
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]

    assert tokens == ["latencyprobe-directory"]
    assert pod["automountServiceAccountToken"] is False
    assert manifests.one("ServiceAccount", "agent")["automountServiceAccountToken"] is False


def test_account_has_no_rights(manifests: Any) -> None:
    subjects = {s["name"] for m in manifests if m["kind"].endswith("Binding") for s in m.get("subjects", [])}

    assert subjects == {"lp-latencyprobe-operator", "lp-latencyprobe-cleanup"}


def test_runs_only_where_the_operator_wants_it_whatever_the_taints(manifests: Any, pod: Any) -> None:
    spec = manifests.one("DaemonSet")["spec"]

    assert pod["nodeSelector"] == {"latencyprobe.dev/measure": "true", "kubernetes.io/os": "linux"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}


def test_namespace_admits_the_agent(manifests: Any) -> None:
    labels = manifests.one("Namespace")["metadata"]["labels"]

    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_dials_the_directory_by_the_name_in_its_certificate(manifests: Any, container: Any) -> None:
    service = manifests.one("Service")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"

    assert environment(container)["LATENCYPROBE_DIRECTORY"] == f"https://{host}:8443"
    assert service["spec"]["ports"][0]["port"] == 8443


def test_files_named_in_the_environment_are_mounted(container: Any) -> None:
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = environment(container)

    assert files["LATENCYPROBE_TOKEN_FILE"].removesuffix("/token") in mounts
    assert files["LATENCYPROBE_CA_FILE"].removesuffix("/ca.crt") in mounts
    assert {files["LATENCYPROBE_CGROUP_ROOT"], files["LATENCYPROBE_STATE_DIR"]} <= mounts


def test_looking_into_processes_takes_their_numbers_and_one_capability(render: Render) -> None:
    agent = render(agent={"userStacks": True}).one("DaemonSet")["spec"]["template"]["spec"]

    assert agent["hostPID"] is True
    assert agent["containers"][0]["securityContext"]["capabilities"]["add"] == ["BPF", "PERFMON", "SYS_PTRACE"]


def test_probes_ask_whether_the_loop_turns_and_whether_it_measures(container: Any) -> None:
    port = container["ports"][0]

    for name in ("startupProbe", "livenessProbe"):
        assert container[name]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    assert port["containerPort"] == 8081


def test_otlp_endpoint_reaches_the_operator_only_if_its_own_telemetry_is_wanted(render: Render) -> None:
    endpoint = "http://collector.tracing:4318"
    manifests = render(otlp={"endpoint": endpoint, "operator": True}, networkPolicy={"egress": True})
    operator = manifests.one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert environment(operator)["OTEL_EXPORTER_OTLP_ENDPOINT"] == endpoint
    policy = next(m for m in manifests if m["kind"] == "NetworkPolicy" and m["metadata"]["name"].endswith("-operator"))
    assert {"ports": [{"port": 4318}]} in policy["spec"]["egress"]


def test_otlp_endpoint_reaches_the_agent_alone(render: Render) -> None:
    manifests = render(otlp={"endpoint": "http://collector.tracing:4318"})
    agent = manifests.one("DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    operator = manifests.one("Deployment")["spec"]["template"]["spec"]["containers"][0]

    assert environment(agent)["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector.tracing:4318"
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environment(operator)


def test_authority_of_the_collector_is_mounted_where_the_variable_names_it(render: Render) -> None:
    otlp = {"endpoint": "https://collector.tracing:4318", "operator": True, "caConfigMap": "collector-ca"}
    manifests = render(otlp=otlp)
    for kind in ("DaemonSet", "Deployment"):
        pod = manifests.one(kind)["spec"]["template"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        folder, _, file = environment(pod["containers"][0])["OTEL_EXPORTER_OTLP_CERTIFICATE"].rpartition("/")

        assert volumes[mounts[folder]]["configMap"] == {"name": "collector-ca", "items": [{"key": file, "path": file}]}


def test_authority_of_the_collector_is_told_to_no_operator_without_telemetry_of_its_own(render: Render) -> None:
    for operator in (True, False):
        otlp = {"endpoint": "https://c", "operator": operator, "caConfigMap": "collector-ca"}
        pod = render(otlp=otlp).one("Deployment")["spec"]["template"]["spec"]

        assert ("OTEL_EXPORTER_OTLP_CERTIFICATE" in environment(pod["containers"][0])) == operator
        assert ("otlp-ca" in {volume["name"] for volume in pod["volumes"]}) == operator


def test_limits_of_records_and_spans_are_the_agents_own_defaults_unless_set(render: Render) -> None:
    limits = [
        tuple(
            environment(one.one("DaemonSet")["spec"]["template"]["spec"]["containers"][0]).get(name) for name in LIMITS
        )
        for one in (render(), render(agent={"recordsPerSecond": 0, "spansPerSecond": 1_000_000}))
    ]

    assert limits == [(str(Config().records_per_second), str(Config().spans_per_second)), ("0", "1000000")]


def test_without_endpoint_the_variable_is_absent(container: Any) -> None:
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environment(container)


def test_nobody_is_let_in_unless_the_policy_is_switched_off(render: Render, manifests: Any) -> None:
    policy = manifests.one("NetworkPolicy", "agent")["spec"]
    assert policy == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert [m for m in render(networkPolicy={"enabled": False}) if m["kind"] == "NetworkPolicy"] == []


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://c:4318", 4318), ("https://c/v1", 443), ("http://c", 80), ("http://[fd00::1]:4317", 4317)],
)
def test_network_policy_lets_out_only_names_directory_and_otlp(render: Render, endpoint: str, port: int) -> None:
    policy = render(networkPolicy={"egress": True}, otlp={"endpoint": endpoint}).one("NetworkPolicy", "agent")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert [{p["port"] for p in rule["ports"]} for rule in policy["egress"]] == [{53, 5353}, {8443}, {port}]


def test_what_is_sent_elsewhere_and_pods_behind_other_ports_are_let_out_too(render: Render) -> None:
    where = [
        {"name": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "value": "http://p:9090/api/v1/otlp/v1/metrics"},
        {"name": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "value": "c:4317"},  # as gRPC may have it
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "value": "http://$(NODE_IP):$(OTLP_PORT)/v1/logs"},
        {"name": "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "value": "$(COLLECTOR_URL)"},
        {"name": "OTHER_ENDPOINT", "value": "http://o:1"},
    ]
    manifests = render(
        networkPolicy={"egress": True, "egressPorts": [4318, 9090]},
        otlp={"endpoint": "http://c"},
        agent={"extraEnv": where},
        operator={"extraEnv": where[:1]},
    )

    for component, ports in (("agent", [4318, 9090, 80, 4317]), ("operator", [4318, 9090])):
        rules = manifests.one("NetworkPolicy", component)["spec"]["egress"]
        assert rules[-1] == {"ports": [{"port": port} for port in ports]}
