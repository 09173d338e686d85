"""Settings from the environment."""

from pathlib import Path

import pytest

from latencyprobe.errors import LatencyProbeError
from latencyprobe_operator.config import Config, Toleration


def test_chart_variables_are_read() -> None:
    config = Config.from_environment(
        {
            "LATENCYPROBE_NAMESPACE": "ops",
            "LATENCYPROBE_AGENT_NAMESPACE": "ops-agents",
            "LATENCYPROBE_AGENT_SERVICE_ACCOUNT": "lp-agent",
            "LATENCYPROBE_TLS_DIR": "/tls",
            "LATENCYPROBE_PAIR_KEY_FILE": "/pair",
            "LATENCYPROBE_STORE": "/data/sli.db",
            "LATENCYPROBE_STORE_EPHEMERAL": "true",
            "LATENCYPROBE_LISTEN": "[::]:9443",
        }
    )
    assert (config.namespace, config.agent_namespace, config.agent_service_account) == ("ops", "ops-agents", "lp-agent")
    assert (config.tls_dir, config.pair_key_file, config.store) == (Path("/tls"), Path("/pair"), Path("/data/sli.db"))
    assert (config.store_ephemeral, config.listen_host, config.listen_port) == (True, "::", 9443)


def test_defaults_need_only_the_namespace() -> None:
    config = Config.from_environment({"LATENCYPROBE_NAMESPACE": "ops"})
    assert (config.agent_namespace, config.store_ephemeral) == ("ops-agents", False)
    assert (config.listen_host, config.listen_port) == ("", 8443), "of IPv4 and IPv6"


@pytest.mark.parametrize(
    ("given", "size"),
    [(None, None), ("2Gi", 2 << 30), ("1.5G", 1_500_000_000), ("64Mi", 64 << 20), ("5000", 5000), ("7000m", 7)],
)
def test_a_limit_of_the_store_is_a_quantity_of_kubernetes(given: str | None, size: int | None) -> None:
    environment = {"LATENCYPROBE_NAMESPACE": "ops"} | ({} if given is None else {"LATENCYPROBE_STORE_LIMIT": given})
    assert Config.from_environment(environment).store_limit_bytes == size


def test_tolerations_of_the_agents_are_as_the_chart_has_them() -> None:
    given = (
        '[{"key": "dedicated", "value": "db", "effect": "NoSchedule", "tolerationSeconds": 5}, {"operator": "Exists"}]'
    )
    config = Config.from_environment({"LATENCYPROBE_NAMESPACE": "ops", "LATENCYPROBE_AGENT_TOLERATIONS": given})
    everything = Toleration(operator="Exists")
    assert config.agent_tolerations == (Toleration("dedicated", "Equal", "db", "NoSchedule"), everything)
    assert Config.from_environment({"LATENCYPROBE_NAMESPACE": "ops"}).agent_tolerations == (everything,)


@pytest.mark.parametrize(
    ("given", "labels"), [(None, None), ("{}", {}), ('{"release": "stack"}', {"release": "stack"})]
)
def test_rules_are_written_if_their_labels_are_given(given: str | None, labels: dict[str, str] | None) -> None:
    environment = {"LATENCYPROBE_NAMESPACE": "ops"} | ({} if given is None else {"LATENCYPROBE_RULE_LABELS": given})
    assert Config.from_environment(environment).rule_labels == labels


def test_results_are_mirrored_if_that_is_asked_for() -> None:
    environment = {"LATENCYPROBE_NAMESPACE": "ops"}
    assert not Config.from_environment(environment).open_reports
    assert Config.from_environment(environment | {"LATENCYPROBE_OPEN_REPORTS": "true"}).open_reports


def test_two_processes_have_different_identities() -> None:
    one, other = (Config.from_environment({"LATENCYPROBE_NAMESPACE": "ops"}) for _ in range(2))
    assert one.identity != other.identity


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "LATENCYPROBE_NAMESPACE"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_LISTEN": "x"}, "LATENCYPROBE_LISTEN"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_LISTEN": "8443"}, "LATENCYPROBE_LISTEN: 8443 is"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_AGENT_TOLERATIONS": "{}"}, "LATENCYPROBE_AGENT_TOLERATIONS"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_STORE_LIMIT": "2 GB"}, "LATENCYPROBE_STORE_LIMIT"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_RULE_LABELS": "release=a"}, "LATENCYPROBE_RULE_LABELS"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_SLO_STORE": "mimir"}, "LATENCYPROBE_SLO_STORE"),
        ({"LATENCYPROBE_NAMESPACE": "o", "LATENCYPROBE_SLO_STORE": "prometheus"}, "LATENCYPROBE_PROMETHEUS_URL"),
        (
            {
                "LATENCYPROBE_NAMESPACE": "o",
                "LATENCYPROBE_SLO_STORE": "prometheus",
                "LATENCYPROBE_PROMETHEUS_URL": "p:9090",
            },
            "LATENCYPROBE_PROMETHEUS_URL",
        ),
    ],
)
def test_what_is_wrong_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(LatencyProbeError, match=named):
        Config.from_environment(environment)
