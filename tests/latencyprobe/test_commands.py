"""commands.py: what validate, rules and version print and return."""

import io
from pathlib import Path

import pytest
import yaml

from tests.latencyprobe.commands_run import run

DATA = Path(__file__).parents[1] / "data" / "latencyprobes"


def test_validate_says_one_line_for_each_good_document(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "validate", DATA / "good" / "whole.yaml", DATA / "good" / "smallest.yaml")
    assert (0, "") == (code, err)
    assert (
        f"{DATA}/good/whole.yaml: LatencyProbe default/whole is valid: targets 2, objectives 2" == out.splitlines()[0]
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


@pytest.mark.parametrize(
    ("form", "kinds"),
    [
        ("prometheusrule", ["PrometheusRule"]),
        ("prometheus", [None]),
        ("pyrra", ["ServiceLevelObjective"] * 2),
        ("openslo", ["SLO"] * 2),
    ],
)
def test_rules_are_written_in_each_form(capfd: pytest.CaptureFixture[str], form: str, kinds: list[str | None]) -> None:
    code, out, err = run(capfd, "rules", "-f", DATA / "good" / "whole.yaml", "-o", form)
    assert (0, "") == (code, err)
    assert kinds == [document.get("kind") for document in yaml.safe_load_all(out)]


def test_rules_of_one_window_leave_out_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    file = DATA / "good" / "whole.yaml"
    code, out, _ = run(capfd, "rules", "-f", file, "-o", "sloth", "--window", "90d")
    assert (0, ["a-client"]) == (code, [slo["name"] for slo in yaml.safe_load(out)["spec"]["slos"]])
    code, out, err = run(capfd, "rules", "-f", file, "--window", "7d")
    assert (1, "") == (code, out)
    assert "default/whole has no objectives of window 7d: no rules\n" in err


def test_rules_without_objectives_say_which_field_to_fill(capfd: pytest.CaptureFixture[str]) -> None:
    file = DATA / "good" / "smallest.yaml"
    code, out, err = run(capfd, "rules", "-f", file)
    assert (1, "") == (code, out)
    assert f"latencyprobe: {file}: spec.objectives: none to make rules of: add one" == err.splitlines()[-1]


def test_rules_of_a_wrong_file_say_what_validate_says(capfd: pytest.CaptureFixture[str]) -> None:
    file = DATA / "bad" / "goal-101.yaml"
    said = run(capfd, "validate", file)[2]
    assert (1, "", said) == run(capfd, "rules", "-f", file)


def test_a_file_called_dash_is_standard_input(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = DATA / "good" / "whole.yaml"
    for command in (("rules", "-f"), ("validate",)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(good.read_bytes())))
        assert 0 == run(capfd, *command, "-")[0]
    bad = (DATA / "bad" / "goal-101.yaml").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(bad)))
    code, _, err = run(capfd, "rules", "-f", "-")
    assert (1, True) == (code, err.startswith("latencyprobe: standard input: spec.objectives[0].goal: "))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"kind: \xff")))
    code, _, err = run(capfd, "validate", "-")
    assert (1, True) == (code, err.startswith("latencyprobe: standard input: not YAML: "))
