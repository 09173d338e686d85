import socket
from pathlib import Path

import pytest

import latencyprobe_agent
from latencyprobe_agent.config import BURST_S, ConfigError, from_environment
from latencyprobe_agent.vocabulary.records import BURST_WINDOWS, WINDOW_SHIFT


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    config = from_environment({})
    assert socket.gethostname() == config.node
    assert Path("/var/run/secrets/latencyprobe/token") == config.token_file
    assert config.ring_size == 4 << 20
    assert (config.records_per_second, config.spans_per_second) == (5000, 2000)
    assert config.bpf_object.name == "exchange.bpf.o"


def test_variables_win_over_defaults() -> None:
    config = from_environment(
        {
            "LATENCYPROBE_NODE": "n1",
            "LATENCYPROBE_DIRECTORY": "https://directory:8443",
            "LATENCYPROBE_CGROUP_ROOT": "/host/cgroup",
            "LATENCYPROBE_BPF_DIR": "/objects",
            "OTEL_METRIC_EXPORT_INTERVAL": "2500",
            "LATENCYPROBE_RECORDS_PER_SECOND": "0",
            "LATENCYPROBE_SPANS_PER_SECOND": "7000",
        }
    )
    assert (config.node, config.directory) == ("n1", "https://directory:8443")
    assert config.cgroup_root == Path("/host/cgroup")
    assert config.bpf_object == Path("/objects/exchange.bpf.o")
    assert config.metric_interval_s == 2.5
    assert (config.records_per_second, config.spans_per_second) == (0, 7000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LATENCYPROBE_RING_BYTES", "lots"),
        ("LATENCYPROBE_RING_BYTES", "5000"),
        ("LATENCYPROBE_HEALTH_PORT", "70000"),
        ("LATENCYPROBE_OUTBOX_BYTES", "-1"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("LATENCYPROBE_DIRECTORY", "http://plain"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*{value}"):
        from_environment({name: value})


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({"LATENCYPROBE_RECORDS_PER_SECOND": "100"}, 2 << 20),
        ({"LATENCYPROBE_RECORDS_PER_SECOND": "5000"}, 4 << 20),
        ({"LATENCYPROBE_RECORDS_PER_SECOND": "30000"}, 8 << 20),
        ({"LATENCYPROBE_RECORDS_PER_SECOND": "0"}, 8 << 20),
        ({"LATENCYPROBE_RECORDS_PER_SECOND": "5000", "LATENCYPROBE_RING_BYTES": "65536"}, 65536),
    ],
)
def test_the_ring_holds_what_may_come_at_once_unless_its_size_is_given(variables: dict[str, str], size: int) -> None:
    assert size == from_environment(variables).ring_size


def test_the_burst_that_the_ring_holds_is_the_kernels() -> None:
    assert BURST_S == round((BURST_WINDOWS << WINDOW_SHIFT) / 1e9)


def test_programs_are_those_of_the_checkout_or_else_of_the_installed_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("latencyprobe_agent.config._CHECKOUT_BPF", tmp_path)
    assert from_environment({}).bpf_dir == tmp_path

    monkeypatch.setattr("latencyprobe_agent.config._CHECKOUT_BPF", tmp_path / "none")
    assert from_environment({}).bpf_dir == Path(latencyprobe_agent.__file__).parent / "bpf"
    assert from_environment({"LATENCYPROBE_BPF_DIR": str(tmp_path)}).bpf_dir == tmp_path
