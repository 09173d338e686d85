import pytest

from latencyprobe_agent.config import ConfigError
from latencyprobe_agent.telemetry.endpoints import delta_requested, endpoints

BOTH = ["traces", "metrics"]


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, "localhost:4318"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "http/json"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "soon"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_COMPRESSION": "lzma"}, "lzma"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/ca"}, "/no/ca"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        endpoints(environ)


def test_a_header_that_cannot_be_sent_is_refused_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS: a name"):
        endpoints({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "authorization: secret"})


@pytest.mark.parametrize("signal", ["traces", "metrics"])
@pytest.mark.parametrize("path", ["", "/otlp"])
def test_the_path_of_one_signal_is_no_endpoint_of_all(signal: str, path: str) -> None:
    with pytest.raises(ConfigError, match=f"the path of a signal is added to it: give http://c:4318{path}$"):
        endpoints({}, f"http://c:4318{path}/v1/{signal}/")
    own = {f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT": f"http://c:4318{path}/v1/{signal}"}
    assert endpoints(own)[0].url.endswith(f"/v1/{signal}")


@pytest.mark.parametrize(
    ("environ", "signals"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, BOTH),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, ["metrics"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, ["metrics"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_nothing_is_exported_that_nobody_asked_for(environ: dict[str, str], signals: list[str]) -> None:
    assert [chosen.signal for chosen in endpoints(environ)] == signals


def test_a_flag_asks_for_both_signals() -> None:
    chosen = endpoints({}, "http://localhost:4318/")
    assert [one.url for one in chosen] == ["http://localhost:4318/v1/traces", "http://localhost:4318/v1/metrics"]


def test_a_signal_s_own_variable_wins_over_the_common_one() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://c",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3000",
        "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "500",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=1",
    }
    traces, metrics = endpoints(environ)
    assert (traces.timeout_s, metrics.timeout_s) == (3.0, 0.5)
    assert (traces.headers, metrics.headers) == ({"a": "1"}, {})


@pytest.mark.parametrize(
    ("endpoint", "asked", "insecure"),
    [
        ("collector:4317", "", False),
        ("collector:4317", "false", False),
        ("collector:4317", "true", True),
        ("http://collector:4317", "", True),
        ("http://collector:4317", "false", True),
        ("https://collector:4317", "true", False),
    ],
)
def test_grpc_needs_no_path_and_without_a_scheme_it_is_tls_unless_asked_otherwise(
    endpoint: str, asked: str, insecure: bool
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    traces, _ = endpoints(environ | {"OTEL_EXPORTER_OTLP_INSECURE": asked})
    assert (traces.url, traces.insecure) == (f"{'http' if insecure else 'https'}://collector:4317", insecure)


def test_temporality_is_cumulative_unless_asked_otherwise() -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    assert not delta_requested({})
    assert delta_requested({name: "Delta"})
