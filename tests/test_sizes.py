"""What has grown too large is split: classes by their state, files by their lines."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_ATTRIBUTES = 10
MOST_LINES = {".py": 300, ".h": 350, ".c": 350}
VOCABULARY = "probe-image/latencyprobe_agent/vocabulary"
GENERATED_OR_TABLES = {"bpf/events.h", f"{VOCABULARY}/records.py", f"{VOCABULARY}/conventions.py"}


def files(*suffixes: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if name.endswith(suffixes) and (ROOT / name).exists()]


def state(of: ast.ClassDef) -> set[str]:
    """The attributes that its methods set."""
    methods = [node for node in of.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }


@pytest.mark.parametrize("suffix", MOST_LINES)
def test_no_file_is_too_long(suffix: str) -> None:
    lengths = {
        name: len((ROOT / name).read_text().splitlines()) for name in files(suffix) if name not in GENERATED_OR_TABLES
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES[suffix]} == {}


def test_no_class_has_too_much_state() -> None:
    found = {
        f"{name}: {node.name}": len(state(node))
        for name in files(".py")
        if name.startswith(("latencyprobe/", "probe-image/", "operator/"))
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("Fake")
    }
    assert {name: count for name, count in found.items() if count > MOST_ATTRIBUTES} == {}
