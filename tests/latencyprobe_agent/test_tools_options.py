"""tools/options.py: which sockets and tasks a tool may be asked for."""

from pathlib import Path

import click
from click.testing import CliRunner

from latencyprobe_agent.tools.options import cgroup_option


@click.command
@cgroup_option("Only this.")
def tool(cgroup: int) -> None:
    """Say what is asked for."""
    click.echo(cgroup)


def test_a_folder_that_is_no_cgroup_of_version_2_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(tool, ["--cgroup", str(tmp_path)])
    assert refused.exit_code == 2
    assert f"{tmp_path.name} is no cgroup of version 2" in refused.output


def test_a_cgroup_of_version_2_is_its_inode(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    assert CliRunner().invoke(tool, ["--cgroup", str(tmp_path)]).output == f"{tmp_path.stat().st_ino}\n"
    assert CliRunner().invoke(tool).output == "0\n"
