"""parsing.py: the verdict on a LatencyProbe."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe import manifest, parsing, planning, spec
from latencyprobe.api import API_VERSION
from latencyprobe.errors import SpecError

MakeProbe = Callable[..., spec.LatencyProbe]
DATA = Path(__file__).parents[1] / "data" / "latencyprobes"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted((DATA / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_bad_document_is_refused_at_the_exact_path(path: Path) -> None:
    expected = next(line for line in path.read_text().splitlines() if line.startswith("# path: "))
    with pytest.raises(SpecError) as refusal:
        parsing.load_file(path)
    assert expected.removeprefix("# path: ") == refusal.value.path
    assert str(refusal.value).startswith(str(path))


@pytest.mark.parametrize("path", [*sorted((DATA / "good").glob("*.yaml")), *EXAMPLES.glob("*.yaml")], ids=str)
def test_good_document_is_accepted(path: Path) -> None:
    (parsed,) = parsing.load_file(path)
    assert len(parsed.spec.objectives) == len(planning.objectives(parsed))


def test_all_problems_of_list_entries_are_found_at_once() -> None:
    (document,) = yaml.safe_load_all((DATA / "good" / "whole.yaml").read_text())
    document["spec"]["targets"][0]["ports"] = [0]
    document["spec"]["targets"][1]["rolle"] = "Client"
    document["spec"]["objectives"][1]["goal"] = "101"
    found = [str(problem) for problem in parsing.problems(document)]
    assert ["spec.targets[0].ports[0]: 0: expected a port from 1 to 65535", "spec.targets[1].rolle: unknown field"] == [
        text.partition(", or")[0].partition(": did")[0] for text in found[:2]
    ]
    assert [
        "spec.objectives[1].goal: '101': expected a percentage above 0 and below 100, in quotes, such as \"99.9\""
    ] == found[2:]


def leaves(kind: msgspec.inspect.Type, at: tuple[str | int, ...] = ("spec",)) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value that is no list or object of others, in a spec with one entry in each list."""
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from leaves(field.type, (*at, field.encode_name))
    elif isinstance(kind, msgspec.inspect.VarTupleType) and isinstance(kind.item_type, msgspec.inspect.StructType):
        yield from leaves(kind.item_type, (*at, 0))
    else:
        yield at


@pytest.mark.parametrize("path", [*leaves(msgspec.inspect.type_info(spec.LatencyProbeSpec))], ids=str)
def test_a_wrong_value_of_any_field_says_in_words_what_is_expected(path: tuple[str | int, ...]) -> None:
    selector = {"matchLabels": {}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
    (document,) = yaml.safe_load_all((DATA / "good" / "smallest.yaml").read_text())
    document["spec"]["targets"][0]["podSelector"] = document["spec"].setdefault("clients", {})["podSelector"] = selector
    document["spec"]["objectives"] = [{"name": "o", "target": "t", "threshold": "1ms", "goal": "99"}]
    at = document
    for step in path[:-1]:
        at = at[step] if isinstance(step, int) else at.setdefault(step, {})
    at[path[-1]] = 2.5
    (problem,) = parsing.problems(document)
    assert re.fullmatch(r"2\.5: expected \S+ .+", problem.problem)


@pytest.mark.parametrize("document", [None, 5, "text", [], {}, {"spec": None}, {"spec": {"targets": 5}}, {5: 6}])
def test_document_of_another_shape_is_a_spec_error(document: object) -> None:
    with pytest.raises(SpecError):
        parsing.parse(document)


@pytest.mark.parametrize("place", ["field", "label"])
def test_half_a_character_is_what_the_api_server_makes_of_it(place: str) -> None:
    labels = {"app": "\udfff"} if place == "label" else {}
    target: dict[str, object] = {"name": "t", "podSelector": {"matchLabels": labels}}
    target |= {"\ud800": 1} if place == "field" else {}
    document = {"apiVersion": API_VERSION, "kind": "LatencyProbe", "metadata": {"name": "a"}}
    (problem,) = parsing.problems(document | {"spec": {"targets": [target]}})
    assert "\ufffd" in str(problem)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["targets", "objectives", "clients", "spans", "suspend"]), json_values)
def test_no_value_of_a_field_escapes_as_another_exception(probe: MakeProbe, field: str, value: object) -> None:
    with contextlib.suppress(SpecError):
        probe(**{field: value})


def test_unknown_field_is_refused_even_if_it_is_null(probe: MakeProbe) -> None:
    with pytest.raises(SpecError, match=r"spec\.objectves: unknown field: did you mean objectives"):
        probe(objectves=None)


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"syscalls": "Exact"}, "spec.evidence.syscalls: 'Exact': expected fields such as slowerThan: 20ms, or {}"),
        ({"syscalls": {"stacks": "Both"}}, "spec.evidence.syscalls.stacks: 'Both': expected None, Kernel or User"),
        ({"offcpu": {"stacks": "Kernel"}}, "spec.evidence.offcpu.stacks: unknown field: remove it"),
        ({"offcpu": {"slowerThan": "soon"}}, "spec.evidence.offcpu.slowerThan: 'soon': expected a duration"),
    ],
)
def test_what_cannot_be_asked_of_waits_names_what_can(probe: MakeProbe, evidence: object, said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        probe(evidence=evidence)


def test_how_stages_are_shown_is_one_of_three_words(probe: MakeProbe) -> None:
    with pytest.raises(SpecError, match=r"spec\.spans\.stages: 'Logs': expected Spans, Events or None"):
        probe(spans={"stages": "Logs"})


def test_numbers_are_read_as_the_api_server_reads_them(probe: MakeProbe) -> None:
    assert probe(targets=[{"name": "cart", "setupTurns": 2.0}], objectives=[]).spec.targets[0].setup_turns == 2
    for port in (80.5, 80.0):  # what may be a string too is no number with a point
        with pytest.raises(SpecError, match=rf"ports\[0\]: {port}"):
            probe(targets=[{"name": "cart", "ports": [port]}])


def test_null_is_absent_where_a_field_or_label_stands_and_unknown_elsewhere(probe: MakeProbe) -> None:
    target = {"name": "cart", "pause": None, "podSelector": {"matchLabels": {"app": None, "name": "a"}}}
    assert probe(targets=[target]).spec.targets[0].pod_selector.match_labels == {"name": "a"}
    with pytest.raises(SpecError, match=r"targets\[0\].suspend: unknown field"):
        probe(targets=[target | {"suspend": None}])


def test_identity_comes_from_the_metadata(probe: MakeProbe) -> None:
    parsed = probe()
    assert ("shop", "checkout", "u1", 3) == (parsed.namespace, parsed.name, parsed.uid, parsed.generation)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not YAML"),
        ("a: 1\na: 2\n", "key 'a' is there twice"),
        ("", "no LatencyProbe in it, but nothing"),
        ("apiVersion: apps/v1\nkind: Deployment\n", "no LatencyProbe in it, but Deployment"),
        ("apiVersion: latencyprobe.dev/v1\nkind: LatencyProbe\n", "apiVersion"),
        ("apiVersion: latencyprobe.dev/v1alpha1\nkind: Latencyprobe\n", "kind"),
    ],
)
def test_unusable_file_says_why(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "probe.yaml"
    file.write_text(text)
    with pytest.raises(SpecError, match=problem):
        parsing.load_file(file)


def test_missing_file_is_named() -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: No such file"):
        parsing.load_file("nowhere.yaml")


def test_probes_are_found_among_other_documents(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    probe_text = (DATA / "good" / "smallest.yaml").read_text()
    file.write_text(f"apiVersion: v1\nkind: Service\n---\n{probe_text}---\n")
    assert ["probe"] == [found.name for found in parsing.load_file(file)]
    file.write_text(f"{probe_text}---\n{probe_text}")
    with pytest.raises(SpecError, match="default/probe is in this file twice"):
        parsing.load_file(file)


def test_problem_in_a_file_of_several_documents_names_the_document(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text((DATA / "good" / "whole.yaml").read_text() + "---\n" + (DATA / "bad" / "port-0.yaml").read_text())
    ((_, first), (place, second)) = manifest.documents(file)
    assert ([], " document 2") == (parsing.problems(first), place)
    assert ["spec.targets[0].ports[1]"] == [problem.path for problem in parsing.problems(second)]
