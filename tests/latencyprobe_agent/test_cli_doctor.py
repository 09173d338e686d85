import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from latencyprobe_agent.cli import commands, doctor
from latencyprobe_agent.kernel.hooks import KERNEL_BTF
from tests.support.cgroup_trees import hybrid
from tests.support.ports import free_port


def test_doctor_names_consequence_and_remedy_and_fails_when_nothing_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LATENCYPROBE_BTF", str(tmp_path / "no-btf"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("LATENCYPROBE_DIRECTORY", f"https://localhost:{free_port()}")
    monkeypatch.setenv("LATENCYPROBE_TOKEN_FILE", str(tmp_path / "no-token"))
    monkeypatch.setenv("LATENCYPROBE_BPF_DIR", str(tmp_path))
    result = CliRunner().invoke(commands.doctor, ["-o", "json"], standalone_mode=False)
    assert result.return_value == 1
    findings = {line["subject"]: line for line in map(json.loads, result.output.splitlines())}
    assert findings["type information"]["verdict"] == "fail"
    assert "CONFIG_DEBUG_INFO_BTF" in findings["type information"]["remedy"]
    assert findings["eBPF objects"]["detail"] == f"no {tmp_path}/exchange.bpf.o"
    assert "`make bpf`" in findings["eBPF objects"]["remedy"]
    assert findings["programs"]["verdict"] == "fail"
    assert "Connection refused" in findings["collector, traces"]["detail"]
    assert "no-token" in findings["directory"]["detail"]
    assert all(finding["remedy"] for finding in findings.values() if finding["verdict"] == "warn")


@pytest.mark.parametrize(
    "wrong",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[fd00::1:4318"},
        {"OTEL_EXPORTER_OTLP_CERTIFICATE": "MIIB" * 300},
        {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "detla"},
        {"OTEL_TRACES_EXPORTER": "console"},
    ],
)
def test_a_wrong_variable_of_telemetry_is_a_finding_that_names_it(wrong: dict[str, str]) -> None:
    (found,) = doctor._collector({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"} | wrong)
    assert found.verdict is doctor.Verdict.WARN
    assert found.detail.startswith(f"{next(iter(wrong))}: ")


def test_what_a_signal_does_without_is_no_ok_and_has_a_remedy() -> None:
    found = doctor._partly("retransmits", "retransmit by tp_btf", {"loss_probe": "[Errno 1] Operation not permitted"})
    assert found.verdict is doctor.Verdict.WARN
    assert "missing loss_probe: [Errno 1] Operation not permitted" in found.detail
    assert "tail loss probes" in found.consequence
    assert "CONFIG_FUNCTION_TRACER" in found.remedy
    unknown = doctor._partly("new", "a by tp_btf", {"b": "not there"})
    assert unknown.consequence
    assert unknown.remedy
    assert doctor._partly("new", "a by tp_btf", {}).verdict is doctor.Verdict.OK


def test_every_event_that_may_be_missing_says_what_is_lost_without_it() -> None:
    optional = {event for one in (*doctor.EVIDENCE, *doctor.TRACKERS) for event in one.optional}
    assert optional == set(doctor._WITHOUT)


@pytest.mark.root
def test_doctor_is_content_where_everything_is_there() -> None:
    result = CliRunner().invoke(commands.doctor, [], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "send_start by tp_btf" in result.output
    assert "ring of 4,096 KiB" in result.output
    assert "cpu.stat of version" in result.output
    assert "PSI of cpu, memory, io" in result.output


@pytest.mark.long
@pytest.mark.parametrize("psi", [True, False])
def test_doctor_says_what_of_a_containers_waits_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, psi: bool
) -> None:
    tree = hybrid(tmp_path)
    if psi:
        (tree.unified / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    else:
        (tree.cpu / "cpu.stat").unlink()
    monkeypatch.setenv("LATENCYPROBE_CGROUP_ROOT", str(tmp_path))
    result = CliRunner().invoke(commands.doctor, ["-o", "json"], standalone_mode=False)
    findings = {line["subject"]: line for line in map(json.loads, result.output.splitlines())}
    quota, pressure = findings["CPU quota"], findings["pressure"]
    if psi:
        assert (quota["verdict"], quota["detail"]) == ("ok", f"cpu.stat of version 1 at {tree.cpu}")
        assert pressure["verdict"] == "ok"
    else:
        assert (quota["verdict"], pressure["verdict"]) == ("warn", "warn")
        assert "LATENCYPROBE_CGROUP_ROOT" in quota["remedy"]
        assert "psi=1" in pressure["remedy"]


@pytest.mark.root
def test_doctor_names_what_a_kernel_without_socket_storage_costs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    types = KERNEL_BTF.read_bytes()
    (tmp_path / "btf").write_bytes(types.replace(b"bpf_sk_storage_tracing_allowed", b"bpf_sk_storage_tracing_missing"))
    monkeypatch.setenv("LATENCYPROBE_BTF", str(tmp_path / "btf"))
    result = CliRunner().invoke(commands.doctor, ["-o", "json"], standalone_mode=False)
    assert result.return_value == 0, result.output
    findings = {line["subject"]: line for line in map(json.loads, result.output.splitlines())}
    assert findings["programs"]["verdict"] == "warn"
    assert findings["programs"]["detail"].startswith("no socket storage")
    assert "not after the idle timeout; beyond 65,536 open" in findings["programs"]["consequence"]
    for evidence in ("retransmits", "handshakes", "tcprt"):
        assert findings[evidence]["verdict"] == "warn"
        assert "use Linux 5.11" in findings[evidence]["remedy"]
