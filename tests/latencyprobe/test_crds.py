"""crds/: the API server knows the same fields and bounds as our own types. (Its verdict itself: tests/e2e.)"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import inspect

from latencyprobe.report.model import LatencyReport
from latencyprobe.slo.evaluate import State
from latencyprobe.spec import LatencyProbeSpec

CRDS = Path(__file__).parents[2] / "crds"


def version(name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = yaml.safe_load((CRDS / f"{name}.yaml").read_text())["spec"]["versions"]
    return found


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = version(name)["schema"]["openAPIV3Schema"]
    return found


def differences(kind: inspect.Type, found: dict[str, Any], at: str) -> list[str]:
    """Return where a schema has other fields, requirements, defaults or bounds than a type."""
    if isinstance(kind, inspect.Metadata):
        return differences(kind.type, found, at)
    if isinstance(kind, inspect.UnionType):
        (kind,) = (t for t in kind.types if not isinstance(t, inspect.NoneType)) if found.get("nullable") else (kind,)
    problems = []
    if isinstance(kind, inspect.StructType):
        fields = {field.encode_name: field for field in kind.fields}
        if fields.keys() != found["properties"].keys():
            return [f"{at}: {sorted(fields.keys() ^ found['properties'].keys())}"]
        if {name for name, field in fields.items() if field.required} != set(found.get("required", ())):
            problems.append(f"{at}: required")
        for name, field in fields.items():
            inner = found["properties"][name]
            problems += differences(field.type, inner, f"{at}.{name}")
            if isinstance(field.default, str | int) and field.default != inner.get("default"):
                problems.append(f"{at}.{name}: default")
    elif isinstance(kind, inspect.VarTupleType):
        bounds = (kind.min_length, kind.max_length)
        if bounds != (found.get("minItems"), found["maxItems"]):
            problems.append(f"{at}: items {bounds}")
        problems += differences(kind.item_type, found["items"], f"{at}[]")
    elif isinstance(kind, inspect.StrType) and "int-or-string" not in str(found):
        if kind.max_length is not None and kind.max_length != found["maxLength"]:
            problems.append(f"{at}: length {kind.max_length}")
    elif isinstance(kind, inspect.IntType):
        if (kind.ge, kind.le) != (found.get("minimum"), found.get("maximum")):
            problems.append(f"{at}: range")
    elif isinstance(kind, inspect.EnumType | inspect.LiteralType):
        values = [v.value for v in kind.cls] if isinstance(kind, inspect.EnumType) else kind.values
        if set(values) != set(found.get("enum") or found["pattern"].strip("^()$").split("|")):
            problems.append(f"{at}: enum")
    return problems


def test_latencyprobe_schema_says_what_the_parser_says() -> None:
    found = schema("latencyprobe")["properties"]["spec"]
    assert [] == differences(inspect.type_info(LatencyProbeSpec), found, "spec")


def test_nothing_is_added_to_what_is_applied_as_a_whole() -> None:
    """Else applying the same manifest again, server-side, is a conflict."""

    def defaults(found: Any, *, inside: bool = False) -> list[Any]:
        if isinstance(found, list):
            return [one for entry in found for one in defaults(entry, inside=inside)]
        if not isinstance(found, dict):
            return []
        own = [found] if inside and "default" in found else []
        inside = inside or found.get("x-kubernetes-map-type") == "atomic"
        return own + [one for entry in found.values() for one in defaults(entry, inside=inside)]

    assert [] == defaults(schema("latencyprobe")["properties"]["spec"])


def names(kind: inspect.Type) -> Any:
    """Return the tree of field names of a type."""
    if isinstance(kind, inspect.UnionType):
        (kind,) = (t for t in kind.types if not isinstance(t, inspect.NoneType))
    if isinstance(kind, inspect.VarTupleType):
        return names(kind.item_type)
    return {f.encode_name: names(f.type) for f in kind.fields} if isinstance(kind, inspect.StructType) else None


def properties(found: dict[str, Any]) -> Any:
    """Return the tree of field names of a schema."""
    found = found.get("items", found)
    return {name: properties(inner) for name, inner in found["properties"].items()} if "properties" in found else None


def test_latencyreport_schema_has_the_models_fields() -> None:
    expected = names(inspect.type_info(LatencyReport))
    by_state = {state.column: None for state in State}
    del expected["results"]["windowEvents"], expected["worst"]  # of `--since` and `--limit`: in no cluster
    assert expected | {"metadata": None, "summary": by_state} == properties(schema("latencyreport"))


def test_both_resources_take_every_state_and_kubectl_prints_how_many_are_in_it() -> None:
    results = schema("latencyreport")["properties"]["results"]["items"]["properties"]
    objectives = schema("latencyprobe")["properties"]["status"]["properties"]["objectives"]["items"]["properties"]
    assert {state.value for state in State} == {*results["state"]["enum"]} == {*objectives["state"]["enum"]}
    printed = {column["jsonPath"]: column["name"] for column in version("latencyreport")["additionalPrinterColumns"]}
    assert {f".summary.{state.column}" for state in State} <= printed.keys()


@pytest.mark.parametrize("name", ["latencyprobe", "latencyreport"])
def test_every_string_and_list_is_bounded(name: str) -> None:
    def unbounded(found: dict[str, Any], at: str) -> list[str]:
        bound = {"string": {"maxLength", "enum"}, "array": {"maxItems"}, "object": {"properties", "maxProperties"}}
        here = [at] if not bound.get(found.get("type", ""), found.keys()) & found.keys() else []
        inner = dict(found.get("properties", {}))
        inner |= {key: found[key] for key in ("items", "additionalProperties") if key in found}
        return here + [problem for key, value in inner.items() for problem in unbounded(value, f"{at}.{key}")]

    assert [".apiVersion", ".kind", ".metadata"] == unbounded(schema(name), "")
