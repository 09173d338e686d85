"""manifest.py: a file is read as kubectl reads it. What is expected is what `kubectl label --local` made of it."""

import math
from pathlib import Path
from typing import Any

import pytest

from latencyprobe import manifest, parsing
from latencyprobe.errors import SpecError

DATA = Path(__file__).parents[1] / "data" / "latencyprobes"
FOREIGN = "apiVersion: v1\nkind: ConfigMap\n"
_MANY = ("[1]", "{b: 1}")


def read(tmp_path: Path, labels: str) -> Any:
    """Return what a LatencyProbe's labels are, written so."""
    file = tmp_path / "probe.yaml"
    file.write_text(f"kind: LatencyProbe\nmetadata: {{labels: {labels}}}\n")
    ((_, document),) = manifest.documents(file)
    assert isinstance(document, dict)
    return document["metadata"]["labels"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e3", 1000), ("80.0", 80), ("1_0e3", 10_000), ("5.", 5), (".5", 0.5), ("1e-3", 0.001), ("-.5", -0.5)),
        *(("08", 8), ("09.5", 9.5), ("010", 8), ("-010", -8), ("0o17", 15), ("0B11", 3), ("+0x1F", 31), ("1_00", 100)),
        *((text, text) for text in ("2026-11-01", "2026-11-01T10:00:00Z", "2026-13-45", "12:30", "1:30.5", "=", "<<")),
        *((text, text) for text in ("1e", "e3", "1.2.3", "0b2", "_1", "0x", "1١")),
        *(("9" * 30, int(1e30)), ("0" + "7" * 30, int(float("7" * 30)))),
        *((text, text) for text in ("1" * 5000, "9" * 5000, "0" + "7" * 5000, "0x" + "f" * 5000, "1e400")),
        *(("y", True), ("No", False), ("on", True), ("~", None), ("'08'", "08"), ('"1e3"', "1e3")),
    ],
)
def test_a_text_without_quotes_is_what_kubectl_takes_it_for(tmp_path: Path, text: str, value: object) -> None:
    found = read(tmp_path, f"{{a: {text}}}")["a"]
    assert (type(value), value) == (type(found), found)


def test_what_is_no_finite_number_is_no_text_either(tmp_path: Path) -> None:
    assert math.inf == read(tmp_path, "{a: .inf}")["a"]


def test_a_key_is_a_text_whatever_it_looks_like(tmp_path: Path) -> None:
    assert {"5": "a", "true": "b", "1.5": "c"} == read(tmp_path, "{5: a, y: b, 1.5: c}")


def test_a_key_may_be_in_what_is_merged_too_and_stands_for_itself(tmp_path: Path) -> None:
    document = read(tmp_path, '{a: {b: &b {<<: {k: "1"}, k: "2"}}, c: {<<: *b}, d: {<<: {e: "3"}, <<: {f: "4"}}}')
    assert {"a": {"b": {"k": "2"}}, "c": {"k": "2"}, "d": {"e": "3", "f": "4"}} == document


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ("{a: {b: 1, b: 2}}", "key 'b' is there twice"),
        ("&a {b: *a}", "recursive"),
        ("&a [*a]", "recursive"),
        ("{a: !!int abc}", "'abc' is no number"),
        ("{a: !!bool maybe}", "not YAML"),
        *((f"{{a: !!{tag} {value}}}", "not YAML") for tag in ("int", "float", "timestamp", "merge") for value in _MANY),
        ("{a: !!python/object:os.x {}}", "not YAML"),
        ("{? [a] : b}", "not YAML"),
    ],
)
def test_what_kubectl_refuses_is_refused_in_one_line(tmp_path: Path, labels: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem) as refusal:
        read(tmp_path, labels)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["data: {expires: 2026-02-30}", "enum: [a, =]", "x: {y: {z: &b {<<: {k: 1}, k: 2}}}\nc: {<<: *b}"]
)
def test_a_foreign_document_beside_a_latencyprobe_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{FOREIGN}{text}\n---\n{(DATA / 'good' / 'smallest.yaml').read_text()}")
    assert ["probe"] == [found.name for found in parsing.load_file(file)]
