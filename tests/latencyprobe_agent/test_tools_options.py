"""tools/options.py: which sockets and tasks a tool may be asked for."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from latencyprobe import group
from latencyprobe_agent.tools.options import cgroup_option


@click.command
@cgroup_option("Only this.")
def asked(cgroup: int) -> None:
    """Say what is asked for."""
    click.echo(cgroup)


@pytest.mark.parametrize("tool", ["retransmits", "handshakes", "tcprt", "syscalls", "flame", "record"])
def test_a_number_that_no_process_has_is_refused(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LATENCYPROBE_BPF_DIR", str(tmp_path))  # which has no programs
    assert group.run([tool, "--pid", "5000000000"]) == 2
    assert "5000000000 is not in the range" in capsys.readouterr().err


def test_a_folder_that_is_no_cgroup_of_version_2_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(asked, ["--cgroup", str(tmp_path)])
    assert refused.exit_code == 2
    assert f"{tmp_path.name} is no cgroup of version 2" in refused.output


def test_a_cgroup_of_version_2_is_its_inode(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    assert CliRunner().invoke(asked, ["--cgroup", str(tmp_path)]).output == f"{tmp_path.stat().st_ino}\n"
    assert CliRunner().invoke(asked).output == "0\n"
