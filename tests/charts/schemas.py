"""JSON schemas for kubeconform: Kubernetes' own objects, those of the Prometheus Operator, and ours."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support import definitions
from tests.support.api_server import bench

REPOSITORY = Path(__file__).parents[2]
BENCH = REPOSITORY / "tests" / "e2e" / "bench"
NAMES = "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json"
_REFERENCE = "#/definitions/"
# Kubernetes takes more than its schema says: numbers where a text is meant
_WIDER = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}

Conform = Callable[[str], None]


def kubernetes_version() -> str:
    """Return the Kubernetes of the bench, as a module's version."""
    lines = (BENCH / "programs/kube/go.mod").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.split()[:1] == ["k8s.io/kubernetes"])


def write_schemas(folder: Path) -> None:
    """Write one file for each kind, which refuses fields that the kind does not have."""
    swagger = Path(bench("module", f"k8s.io/kubernetes@{kubernetes_version()}")) / "api/openapi-spec/swagger.json"
    kinds = {**of_kubernetes(json.loads(swagger.read_text())["definitions"]), **dict(of_definitions(all_definitions()))}
    for (group, version, kind), schema in kinds.items():
        # of objects without a group kubeconform takes the version for it
        (folder / f"{kind.lower()}-{group or version}-{version}.json").write_text(json.dumps(schema))


def all_definitions() -> Iterator[dict[str, Any]]:
    """Return the CustomResourceDefinitions whose objects the chart, the examples and our rules have."""
    yield from (definitions.monitoring(plural) for plural in ("prometheusrules", "servicemonitors"))
    for path in (REPOSITORY / "crds").glob("*.yaml"):
        yield from yaml.safe_load_all(path.read_text())


def of_kubernetes(definitions: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    """Return the schema of each kind, with the definitions that it needs and no other."""
    strict = {name: _WIDER.get(name) or closed(schema) for name, schema in definitions.items()}
    kinds = {}
    for name, schema in definitions.items():
        for of in schema.get("x-kubernetes-group-version-kind", ()):
            needed = {one: strict[one] for one in reached(name, strict)}
            kinds[of["group"], of["version"], of["kind"]] = {"$ref": _REFERENCE + name, "definitions": needed}
    return kinds


def of_definitions(definitions: Iterator[dict[str, Any]]) -> Iterator[tuple[tuple[str, str, str], Any]]:
    """Return the schema of each version of these CustomResourceDefinitions."""
    for spec in (definition["spec"] for definition in definitions):
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
            yield (spec["group"], version["name"], spec["names"]["kind"]), closed(schema)


def closed(schema: Any) -> Any:
    """Return the schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        inside["additionalProperties"] = False
    return inside


def reached(name: str, definitions: dict[str, Any]) -> set[str]:
    """Return the names of the definitions that one refers to, itself included."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting += references(definitions[one])
    return found


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from references(one)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(_REFERENCE)
            else:
                yield from references(value)


def conforming(folder: Path) -> Conform:
    """Return a check of a stream of objects, which raises AssertionError with kubeconform's findings."""
    write_schemas(folder)
    program = bench("program", "kubeconform")

    def check(text: str) -> None:
        command = [program, "-strict", "-summary", "-schema-location", str(folder / NAMES), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return check
