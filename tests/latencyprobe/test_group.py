"""group.py: messages and exit codes, and commands that are found where they are installed."""

import sys
from importlib.metadata import EntryPoint

import click
import pytest

from latencyprobe import group
from latencyprobe.errors import LatencyProbeError

REMEDY = "pip install 'latencyprobe[operator]'"
DEFAULT = "pip install latencyprobe\n"


@click.command()
@click.argument("what")
def sample(what: str) -> int:
    """Do as told."""
    if what == "import":
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
    if what == "fail":
        raise LatencyProbeError("the disk is full: make room")
    return int(what)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "sample": EntryPoint("sample", f"{__name__}:sample", "latencyprobe.commands"),
        "operator": EntryPoint("operator", "latencyprobe_operator.nowhere:operator", "latencyprobe.commands"),
        "run": EntryPoint("run", "latencyprobe_agent.nowhere:run", "latencyprobe.commands"),
    }
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or type(sys)(__name__))
    monkeypatch.setattr(sys.modules[__name__], "sample", sample, raising=False)
    monkeypatch.setattr(group, "_entry_points", lambda: points)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["sample", "0"], 0, ""),
        (["sample", "3"], 3, ""),
        (["sample", "fail"], 1, "latencyprobe: the disk is full: make room\n"),
        (
            ["sample", "import"],
            1,
            "latencyprobe: the command 'sample' needs numpy, which is not installed: " + DEFAULT,
        ),
        (["sample"], 2, "latencyprobe: Missing argument 'WHAT': see latencyprobe sample --help\n"),
        (["nonsense"], 2, "latencyprobe: No such command 'nonsense': see latencyprobe --help\n"),
        (
            ["operator", "--cleanup"],
            1,
            "latencyprobe: the command 'operator' needs latencyprobe_operator.nowhere, which is not installed: "
            + REMEDY
            + "\n",
        ),
        (
            ["run", "--port", "6379"],
            1,
            "latencyprobe: the command 'run' needs latencyprobe_agent.nowhere, which is not installed: " + DEFAULT,
        ),
    ],
)
def test_each_ending_has_its_code_and_one_line(
    args: list[str], code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert code == group.run(args)
    assert ("", message) == tuple(capfd.readouterr())


def test_without_a_command_it_helps_and_has_not_failed(capfd: pytest.CaptureFixture[str]) -> None:
    assert 0 == group.run([])
    out, err = capfd.readouterr()
    assert ("Examples:\n" in out, err) == (True, "")


def test_its_version_is_an_option_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert 0 == group.run(["--version"])
    assert capfd.readouterr().out.startswith("latencyprobe 0.")


def test_help_lists_commands_also_those_that_are_not_installed(capfd: pytest.CaptureFixture[str]) -> None:
    assert 0 == group.run(["--help"])
    text = capfd.readouterr().out
    assert "sample    Do as told." in text
    assert f"operator  (not installed: {REMEDY})" in text
    assert "Examples:\n" in text
