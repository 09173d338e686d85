from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.config import ConfigError
from latencyprobe_agent.telemetry.endpoints import delta_requested, endpoints

BOTH = ["traces", "metrics"]
PREFIX = "OTEL_EXPORTER_OTLP_"
SAID = st.one_of(  # what an environment can hold
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.sampled_from(["http://[fd00::1:4318", "http://[collector]:4318", "x" * 300, "x" * 5000, "9" * 5000, "9" * 30]),
    st.builds("http://c:{}".format, st.text("0123456789abc[]/", max_size=8)),
)


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


@given(
    st.dictionaries(
        st.sampled_from(["ENDPOINT", "PROTOCOL", "HEADERS", "TIMEOUT", "COMPRESSION", "CERTIFICATE", "CLIENT_KEY"]),
        SAID,
    )
)
def test_whatever_variables_say_they_are_taken_or_a_config_error(said: dict[str, str]) -> None:
    """Which a caller can do without: any other error would end measuring on every node."""
    with suppress(ConfigError):
        chosen = endpoints({PREFIX + "ENDPOINT": "http://c"} | {PREFIX + name: value for name, value in said.items()})
        assert all(one.timeout_s < 1e9 for one in chosen)


@pytest.mark.parametrize(
    "url", ["http://[fd00::1:4318", "http://[collector]:4318", "http://c:http", "http://c:99999", "http://c:0"]
)
@pytest.mark.parametrize("variable", [PREFIX + "ENDPOINT", PREFIX + "METRICS_ENDPOINT"])
def test_an_endpoint_that_is_no_url_is_refused_by_its_variable(variable: str, url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        endpoints({variable: url})
    assert str(refused.value).startswith(f"{variable}: {url!r} is no http or https URL")


@pytest.mark.parametrize("name", ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"])
@pytest.mark.parametrize(
    "key", ["-----BEGIN PRIVATE KEY----- MC4C", "MC4C\nAQAw\n", "MC4CAQAw\n" * 300, "MC4CAQAw/+/A=="], ids=str.split
)
def test_a_key_that_stands_in_place_of_its_path_is_not_told(name: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{PREFIX}{name}: a text, where a path should be") as refused:
        endpoints({PREFIX + "ENDPOINT": "https://c", PREFIX + name: key})
    assert "MC4C" not in str(refused.value)


def test_a_folder_is_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}: no file"):
        endpoints({PREFIX + "ENDPOINT": "https://c", PREFIX + "CERTIFICATE": str(tmp_path)})


@pytest.fixture
def pem(tmp_path: Path) -> str:
    """A file that has something."""
    (file := tmp_path / "pem").write_text("-----BEGIN")
    return str(file)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("name", ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"])
def test_an_empty_file_is_no_certificate_and_no_key(protocol: str, name: str, pem: str, tmp_path: Path) -> None:
    (empty := tmp_path / "empty").touch()
    environ = dict.fromkeys((PREFIX + "CLIENT_CERTIFICATE", PREFIX + "CLIENT_KEY"), pem)
    environ |= {PREFIX + "ENDPOINT": "https://c", PREFIX + "PROTOCOL": protocol, PREFIX + name: str(empty)}
    with pytest.raises(ConfigError, match=f"^{PREFIX}{name}: {empty}: an empty file"):
        endpoints(environ)


@pytest.mark.parametrize(
    ("protocol", "given", "missing"),
    [
        ("grpc", ["CLIENT_KEY"], "CLIENT_CERTIFICATE"),
        ("grpc", ["CLIENT_CERTIFICATE"], "CLIENT_KEY"),
        ("http/protobuf", ["CLIENT_KEY"], "CLIENT_CERTIFICATE"),
        ("http/protobuf", ["CLIENT_CERTIFICATE"], ""),  # the file may have both
        ("grpc", ["CLIENT_CERTIFICATE", "CLIENT_KEY"], ""),
    ],
)
def test_half_a_client_certificate_is_refused_before_grpc_ends_the_process(
    protocol: str, given: list[str], missing: str, pem: str
) -> None:
    environ = {PREFIX + "ENDPOINT": "https://c", PREFIX + "PROTOCOL": protocol}
    environ |= {PREFIX + "TRACES_" + name: pem for name in given}
    if not missing:
        chosen = endpoints(environ)[0]
        assert [chosen.certificate, chosen.key] == [pem, pem if "CLIENT_KEY" in given else None]
        return
    with pytest.raises(ConfigError, match=f"^{PREFIX}TRACES_{given[0]}: .*{PREFIX}{missing} is missing"):
        endpoints(environ)


def test_a_header_that_cannot_be_sent_is_refused_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS: a name"):
        endpoints({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "authorization: secret"})


@pytest.mark.parametrize(
    ("name", "said"),
    [("TIMEOUT", "10s"), ("PROTOCOL", "http/json"), ("COMPRESSION", "zstd"), ("CERTIFICATE", "/n"), ("HEADERS", "a:")],
)
@pytest.mark.parametrize("signal", BOTH)
def test_a_wrong_variable_of_one_signal_is_named_and_not_that_of_all(signal: str, name: str, said: str) -> None:
    own = f"{PREFIX}{signal.upper()}_{name}"
    with pytest.raises(ConfigError, match=f"^{own}: "):
        endpoints({PREFIX + "ENDPOINT": "http://c", own: said})


@pytest.mark.parametrize("said", ["console", "prometheus", "otlp,console", "non"])
@pytest.mark.parametrize("signal", BOTH)
def test_an_exporter_that_there_is_not_is_refused_where_something_would_be_exported(signal: str, said: str) -> None:
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    with pytest.raises(ConfigError, match=f"^{variable}: '{said}' is not supported: use otlp or none"):
        endpoints({variable: said}, "http://c")
    assert endpoints({variable: said}) == ()


def test_values_are_taken_in_whatever_case() -> None:
    said = {"ENDPOINT": "http://c", "PROTOCOL": "GRPC", "COMPRESSION": " Gzip"}
    (chosen,) = endpoints({PREFIX + name: value for name, value in said.items()} | {"OTEL_TRACES_EXPORTER": "None"})
    assert (chosen.signal, chosen.protocol, chosen.compression) == ("metrics", "grpc", "gzip")


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
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": " NONE"}, ["metrics"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": ""}, BOTH),
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
    exported = endpoints({PREFIX + "ENDPOINT": "https://c"})
    assert not delta_requested({}, exported)
    assert not delta_requested({name: ""}, exported)
    assert delta_requested({name: "Delta"}, exported)
    assert delta_requested({name: "LowMemory"}, exported)


def test_a_temporality_that_there_is_not_is_refused_where_metrics_are_exported() -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    with pytest.raises(ConfigError, match=f"^{name}: 'detla' is not supported: use cumulative, delta or lowmemory"):
        delta_requested({name: "detla"}, endpoints({PREFIX + "ENDPOINT": "https://c"}))
    assert not delta_requested({name: "detla"}, endpoints({}))
    traces = endpoints({PREFIX + "ENDPOINT": "https://c", "OTEL_METRICS_EXPORTER": "none"})
    assert not delta_requested({name: "detla"}, traces)
