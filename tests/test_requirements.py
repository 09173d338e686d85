"""What the images take from PyPI: by hash, in the versions that are tested here."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {"agent": ROOT / "probe-image/requirements.txt", "operator": ROOT / "operator/requirements.txt"}
REMEDY = "run scripts/pin"
# Dependencies of all that the operator's image does without; tests/latencyprobe/test_dependencies.py holds the imports.
ONLY_THE_AGENTS = {"numpy", "pycxxfilt", "pyelftools"}


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(lines: list[str]) -> dict[str, str]:
    """By package; lines that pin nothing are left out."""
    found = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in lines)
    return {normal(one[1]): one[2] for one in found if one}


@pytest.mark.parametrize("part", FILES)
def test_every_package_is_pinned_by_hash_in_the_version_of_constraints(part: str) -> None:
    entries = re.sub(r"^#.*\n", "", FILES[part].read_text()).replace("\\\n", " ").splitlines()
    pinned, tested = versions(entries), versions((ROOT / "constraints.txt").read_text().splitlines())

    assert len(pinned) == len(entries) > 10, REMEDY
    assert pinned.items() <= tested.items(), REMEDY
    assert [] == [one for one in entries if "--hash=sha256:" not in one], REMEDY


@pytest.mark.parametrize("part", FILES)
def test_every_dependency_that_is_declared_is_pinned(part: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"].get(part, ())]
    pinned = versions(FILES[part].read_text().splitlines())

    missing = {normal(re.split(r"[ ;<>=\[]", one)[0]) for one in declared} - pinned.keys()
    assert missing == (ONLY_THE_AGENTS if part == "operator" else set()), REMEDY
