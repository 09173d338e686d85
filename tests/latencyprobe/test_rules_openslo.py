"""rules/openslo.py: the OpenSLO project's own checker (`oslo validate`) takes the documents."""

import subprocess
from pathlib import Path

import pytest

from latencyprobe import parsing
from latencyprobe.rules import forms

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def oslo() -> Path:
    """Return the program, compiled by the bench."""
    command = [ROOT / "tests/e2e/bench/bench", "program", "oslo"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def validated(oslo: Path, file: Path, text: str) -> subprocess.CompletedProcess[str]:
    file.write_text(text)
    return subprocess.run([oslo, "validate", "-f", file], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_oslo_takes_the_examples(oslo: Path, tmp_path: Path, example: Path) -> None:
    done = validated(oslo, tmp_path / "slo.yaml", forms.text("openslo", parsing.load_file(example)))
    assert (0, True) == (done.returncode, "Valid!" in done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"), [("Occurrences", "Guesses"), ("target: 0.", "target: 9."), ("28d", "soon")]
)
def test_oslo_refuses_what_is_wrong(oslo: Path, tmp_path: Path, right: str, wrong: str) -> None:
    text = forms.text("openslo", parsing.load_file(ROOT / "examples/checkout.yaml"))
    assert right in text
    assert validated(oslo, tmp_path / "slo.yaml", text.replace(right, wrong)).returncode != 0
