"""pyproject.toml declares what is imported, in the extra of who imports it, and nothing else."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import files, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
# What imports the packages of an extra; "" is what everybody gets.
IMPORTERS = {
    "": ["latencyprobe", "probe-image"],
    "grpc": ["probe-image"],
    "operator": ["operator"],
    "dev": ["tests", "benchmarks", "scripts", "release"],
}
COMMANDS_AND_PLUGINS = {
    "import-linter",
    "mypy",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "types-pyyaml",
}
INSTALLED = packages_distributions()


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """The distributions that extras declare."""
    return {normal(re.match(r"[\w.-]+", requirement)[0]) for extra in extras for requirement in DECLARED[extra]}


def modules(folder: str) -> Iterator[str]:
    """The modules that the files of a folder import, by their full names."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield str(node.module)


@cache
def distribution(module: str) -> str:
    """The distribution that brings a module; "" for Python's own and ours."""
    found = {normal(name) for name in INSTALLED.get(module.partition(".")[0], ())}
    if len(found) > 1:  # they share a namespace
        path = module.replace(".", "/")
        found = {name for name in found if any(str(file).startswith((f"{path}/", f"{path}.")) for file in files(name))}
    assert len(found) <= 1, f"{module} comes from each of {found}"
    return "".join(found - {"latencyprobe"})


@cache
def imported(folder: str) -> set[str]:
    """The distributions whose modules the files of a folder import."""
    return {distribution(module) for module in modules(folder)} - {""}


@pytest.mark.parametrize("extra", DECLARED)
def test_what_is_declared_is_imported(extra):
    used = {name for folder in IMPORTERS[extra] for name in imported(folder)}
    assert set() == declared(extra) - used - COMMANDS_AND_PLUGINS


@pytest.mark.parametrize(
    ("folder", "extras"),
    [("latencyprobe", [""]), ("probe-image", ["", "grpc"]), ("operator", ["", "operator"])],
)
def test_what_a_package_imports_is_declared(folder, extras):
    ours = {"latencyprobe", "latencyprobe_agent", "latencyprobe_operator"}
    roots = {module.partition(".")[0] for module in modules(folder)}
    assert set() == imported(folder) - declared(*extras)
    assert roots - sys.stdlib_module_names - ours <= INSTALLED.keys(), "all is installed here"


def test_what_only_the_agent_has_is_imported_by_nobody_else():
    """Neither the operator's image nor krew's plugin has it."""
    shared = {"click", "jinja2", "msgspec", "pyyaml", "rich", "urllib3"}
    assert imported("latencyprobe") == shared
    assert imported("operator") <= shared | declared("operator")


@pytest.mark.parametrize("folder", IMPORTERS["dev"])
def test_what_tests_import_is_declared(folder):
    assert set() == imported(folder) - declared(*DECLARED)
