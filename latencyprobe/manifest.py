"""Manifest files: YAML as a person writes it for `kubectl apply`, read into plain documents.

Receives a path, returns the documents that are meant to be LatencyProbes. `parsing.load_file` and
`latencyprobe validate` call it; what the documents say is parsing.py's matter.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import yaml

from latencyprobe import yaml_text
from latencyprobe.api import GROUP, KIND
from latencyprobe.errors import SpecError


def called(path: str | Path) -> str:
    """Return what messages call a file; `-` is standard input."""
    return "standard input" if str(path) == "-" else str(path)


def documents(path: str | Path) -> tuple[tuple[str, object], ...]:
    """Return the unparsed LatencyProbes of a YAML file, each with its place (` document 2`, empty in a file of one).

    `-` is standard input. Documents of other API groups beside them are left alone. Raises SpecError: unreadable, not
    YAML, no LatencyProbe.
    """
    source = called(path)
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
        found = list(yaml.load_all(text.decode(), _Loader))
    except OSError as error:
        raise SpecError("", f"{error.strerror}: give the path of a LatencyProbe's YAML file", source) from error
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:  # also of tags such as !!bool maybe
        raise SpecError("", f"not YAML: {' '.join(str(error).split())}", source) from error
    entries = [(f" document {i}" if len(found) > 1 else "", entry) for i, entry in enumerate(found, 1)]
    mine = tuple((place, entry) for place, entry in entries if entry is not None and not _is_foreign(entry))
    if not mine:
        others = ", ".join(str(entry["kind"]) for _, entry in entries if isinstance(entry, dict)) or "nothing"
        raise SpecError("", f"no LatencyProbe in it, but {others}: write one with kind: {KIND}", source)
    return mine


def _is_foreign(document: object) -> bool:
    """Return whether a document is plainly another API group's, and not a LatencyProbe with a slip in it."""
    if not isinstance(document, dict) or not {"apiVersion", "kind"} <= document.keys():
        return False
    return document["kind"] != KIND and not str(document["apiVersion"]).startswith(GROUP)


def _refused(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


class _Loader(yaml.SafeLoader):
    """Reads as kubectl does what has no quotes: `1e3` and `08` are numbers, 80.0 is 80, a bare `y` or `n` is a boolean,
    a date, `12:30` and `=` are texts, and a key is always one. Refuses a key that is there twice, as the API server
    does, and what contains itself.
    """

    bool_values: ClassVar[dict[str, bool]] = {**yaml.SafeLoader.bool_values, "y": True, "n": False}

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0] and yaml_text.number(value) is not None:
            return _NUMBER
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:  # before merge keys (`<<`) are put in: they may bring the same
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise _refused(f"key {key.value!r} is there twice", key)
                seen.add(key.value)
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        self.deep_construct = True  # else what contains itself would be built
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        return {json.dumps(key) if isinstance(key, int | float) else key: value for key, value in found.items()}

    def construct_text(self, node: yaml.ScalarNode) -> str:
        text: str = self.construct_scalar(node)  # refuses what has such a tag and is none
        return text

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_text(node)
        number = yaml_text.number(text)
        if number is None:
            raise _refused(f"{text!r} is no number", node)
        return int(number) if isinstance(number, float) and number.is_integer() else number


_TAG = "tag:yaml.org,2002:"
_MERGE, _NUMBER = f"{_TAG}merge", f"{_TAG}float"
_KEPT = (f"{_TAG}bool", f"{_TAG}null", _MERGE)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^[yYnN]$"), list("yYnN"))
for _tag in (_NUMBER, f"{_TAG}int"):
    _Loader.add_constructor(_tag, _Loader.construct_number)
for _tag in (_MERGE, f"{_TAG}timestamp"):  # of values
    _Loader.add_constructor(_tag, _Loader.construct_text)
