"""scripts/setup: the environment of a checkout is its own, wherever it lay before and whatever Python it had."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
# Whose pip installs where is written down, and nothing is installed; all else pip does itself.
PIP = """
import json, os, runpy, sys
sys.path = [path for path in sys.path if path != os.environ["PYTHONPATH"]]
if "install" in sys.argv:
    with open(os.environ["PIPS"], "a") as file:
        print(json.dumps([sys.prefix, os.getcwd()]), file=file)
else:
    del sys.modules["pip"]
    runpy.run_module("pip", run_name="__main__")
"""


class World:
    """Checkouts with nothing but what setup reads, on a machine that has all Debian packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pips = folder / "pips"
        (folder / "bin").mkdir()
        (folder / "bin/dpkg-query").write_text("#!/bin/sh\necho -n installed\n")
        (folder / "bin/dpkg-query").chmod(0o755)
        (folder / "stub/pip").mkdir(parents=True)
        (folder / "stub/pip/__init__.py").touch()
        (folder / "stub/pip/__main__.py").write_text(PIP)

    def checkout(self, name: str) -> Path:
        root = self.folder / name
        (root / "scripts").mkdir(parents=True)
        for file in ("pyproject.toml", "constraints.txt", "scripts/setup"):
            shutil.copy(ROOT / file, root / file)
        return root

    def setup(self, root: Path) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        environ = {"PATH": path, "PYTHONPATH": str(self.folder / "stub"), "PIPS": str(self._pips)}
        return subprocess.run([root / "scripts/setup"], env=environ, capture_output=True, text=True, check=False)

    def pips(self) -> list[list[str]]:
        """(environment, folder) of each installation so far."""
        return [json.loads(line) for line in self._pips.read_text().splitlines()] if self._pips.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def first(world: World) -> Path:
    """A checkout that is set up."""
    root = world.checkout("first")
    done = world.setup(root)
    assert done.returncode == 0, done.stderr
    assert world.pips() == [[str(root / ".venv"), str(root)]]
    return root


def test_nothing_is_installed_again_until_something_changes(world: World, first: Path) -> None:
    assert (world.setup(first).stdout, len(world.pips())) == ("", 1)
    with (first / "constraints.txt").open("a") as file:
        file.write("more==1\n")

    assert world.setup(first).returncode == 0
    assert world.pips() == [[str(first / ".venv"), str(first)]] * 2


@pytest.mark.parametrize("how", ["copied", "moved"])
def test_the_environment_of_another_folder_is_made_anew_and_that_one_stays(world: World, first: Path, how: str) -> None:
    second = world.folder / "second"
    if how == "copied":
        shutil.copytree(first, second, symlinks=True)
    else:
        first.rename(second)
    done = world.setup(second)

    assert done.returncode == 0, done.stderr
    assert world.pips()[1:] == [[str(second / ".venv"), str(second)]]
    assert f"{second}/.venv/bin/" in (second / ".venv/bin/pip").read_text().splitlines()[0]


def test_another_python_gets_an_environment_of_its_own(world: World, first: Path) -> None:
    (packages,) = (first / ".venv/lib").iterdir()
    packages.rename(packages.with_name("python3.0"))  # as if these were of the Python before
    (first / ".venv/inputs").write_text("those of the Python before\n")
    done = world.setup(first)

    assert done.returncode == 0, done.stderr
    assert [path.name for path in (first / ".venv/lib").iterdir()] == [packages.name]
    assert len(world.pips()) == 2


def test_nothing_is_installed_through_a_link(world: World, first: Path) -> None:
    second = world.checkout("second")
    (second / ".venv").symlink_to(first / ".venv")
    before = (first / ".venv/inputs").read_text()
    done = world.setup(second)

    assert done.returncode != 0
    assert f"{first}/.venv" in done.stderr
    assert (len(world.pips()), (first / ".venv/inputs").read_text()) == (1, before)
