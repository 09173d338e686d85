"""commands.py: what validate, report, slow and version print and return."""

from pathlib import Path

import pytest

from latencyprobe import cli

DATA = Path(__file__).parents[1] / "data" / "latencyprobes"


def run(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return int(stopped.value.code or 0), out, err


def test_validate_says_one_line_for_each_good_document(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "validate", DATA / "good" / "whole.yaml", DATA / "good" / "smallest.yaml")
    assert (0, "") == (code, err)
    assert (
        f"{DATA}/good/whole.yaml: LatencyProbe default/whole is valid: 2 targets, 2 objectives" == out.splitlines()[0]
    )
    assert 2 == len(out.splitlines())


def test_validate_goes_on_after_a_bad_file_and_fails(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [DATA / "bad" / "goal-101.yaml", tmp_path / "missing.yaml", DATA / "good" / "whole.yaml"]
    code, out, err = run(capfd, "validate", *files)
    assert (1, 1) == (code, len(out.splitlines()))
    goal, missing = err.splitlines()
    assert goal.startswith(f"latencyprobe: {files[0]}: spec.objectives[0].goal: '101': expected a percentage above 0")
    assert (
        f"latencyprobe: {files[1]}: No such file or directory: give the path of a LatencyProbe's YAML file" == missing
    )


def test_version_names_the_package(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "version")[1].startswith("latencyprobe 0.")
