"""New CustomResourceDefinitions take every object that those of the release before took."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.releases import ROOT, unpack_previous

UPPER = {"maximum", "maxLength", "maxItems", "maxProperties"}
LOWER = {"minimum", "minLength", "minItems", "minProperties"}
# Rules that are new, and refuse only what the operator itself never took.
MENDED = {
    "self.ports.all(p, type(p) == int ? true : self.role != 'Client')",  # 80.0, which is no port's number or name
    "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",  # values may be absent now
}
INSIDE = {"properties", "items", "additionalProperties"}


def definitions(folder: Path) -> dict[str, Any]:
    found = (yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml")))
    return {one["metadata"]["name"]: one["spec"] for one in found}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tree = tmp_path_factory.mktemp("before")
    unpack_previous(tree, "crds")
    return definitions(tree / "crds")


def narrower(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Yield where a schema takes less than `old`, or fills in something else. What is unknown must be equal."""
    for name in sorted((old.keys() | new.keys()) - INSIDE - {"description"}):
        was, now = old.get(name), new.get(name)
        if name in UPPER:
            fine = now is None or (was is not None and now >= was)
        elif name in LOWER:
            fine = now is None or (was is not None and now <= was)
        elif name == "enum":
            fine = now is None or (was is not None and set(was) <= set(now))
        elif name == "default":
            fine = was == now or (now is None and was in ({}, []))  # to both releases what is absent is empty
        elif name == "required":
            fine = set(now or ()) <= set(was or ())
        elif name == "x-kubernetes-validations":
            fine = {one["rule"] for one in now or ()} <= {one["rule"] for one in was or ()} | MENDED
        else:
            fine = was == now
        if not fine:
            yield f"{at}: {name}: {was} -> {now}"
    for name, was in old.get("properties", {}).items():
        now = new.get("properties", {}).get(name)
        yield from [f"{at}.{name}: gone"] if now is None else narrower(was, now, f"{at}.{name}")
    for name in ("items", "additionalProperties"):
        if name in old or name in new:
            yield from narrower(old.get(name, {}), new.get(name, {}), f"{at}[]")


def refused(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What the new definition would take no more."""
    said = [f"{name} changed" for name in ("group", "scope", "names") if old[name] != new[name]]
    versions = {one["name"]: one for one in new["versions"] if one["served"]}
    for one in (one for one in old["versions"] if one["served"]):
        now = versions.get(one["name"])
        schemas = (each["schema"]["openAPIV3Schema"] for each in (one, now)) if now else ()
        said += narrower(*schemas) if now else [f"version {one['name']} is served no more"]
    return said


def test_every_object_of_the_release_before_is_still_taken(before: dict[str, Any]) -> None:
    now = definitions(ROOT / "crds")

    assert before.keys() <= now.keys()
    assert {name: refused(old, now[name]) for name, old in before.items()} == {name: [] for name in before}


def test_what_is_stored_needs_no_conversion(before: dict[str, Any]) -> None:
    now = definitions(ROOT / "crds")

    for name, old in before.items():
        stored = [one["name"] for one in old["versions"] if one["storage"]]
        assert [one["name"] for one in now[name]["versions"] if one["storage"]] == stored


OLD = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "maxLength": 5, "enum": ["x", "y"]}}}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (OLD, []),
        ({**OLD, "required": []}, []),
        ({**OLD, "required": ["a", "b"]}, [": required: ['a'] -> ['a', 'b']"]),
        ({**OLD, "properties": {}}, [".a: gone"]),
        ({**OLD, "properties": {"a": {"type": "string", "enum": ["x", "y", "z"]}, "b": {}}}, []),
        (
            {**OLD, "properties": {"a": {"type": "string", "maxLength": 4, "enum": ["x", "y"]}}},
            [".a: maxLength: 5 -> 4"],
        ),
        ({**OLD, "properties": {"a": {"type": "string", "enum": ["x"]}}}, [".a: enum: ['x', 'y'] -> ['x']"]),
        ({**OLD, "properties": {"a": {"type": "integer"}}}, [".a: type: string -> integer"]),
        ({**OLD, "x-kubernetes-validations": [{"rule": "r"}]}, [": x-kubernetes-validations: None -> [{'rule': 'r'}]"]),
    ],
)
def test_a_schema_that_takes_less_is_noticed(new: dict[str, Any], said: list[str]) -> None:
    assert list(narrower(OLD, new)) == said
