"""How the operator's process answers SIGTERM."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from latencyprobe_operator.commands import operator

UNREACHABLE = """
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: none, user: {}}]
"""


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_heard_before_the_long_imports(own_signals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latencyprobe_operator.config", None)  # the first import fails

    CliRunner().invoke(operator)

    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


def test_clean_up_that_is_ended_by_a_signal_has_failed(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "LATENCYPROBE_NAMESPACE": "ops"}
    program = "from latencyprobe.cli import main; main()"

    with subprocess.Popen(
        [sys.executable, "-c", program, "operator", "--cleanup"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert "waiting for" in process.stderr.readline()
        process.terminate()
        process.stderr.read()

    assert process.returncode == 130
