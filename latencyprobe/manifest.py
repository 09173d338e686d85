"""Manifest files: YAML as a person writes it for `kubectl apply`, read into plain documents.

Receives a path, returns the documents that are meant to be LatencyProbes. `parsing.load_file` and
`latencyprobe validate` call it; what the documents say is parsing.py's matter.
"""

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import yaml

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
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
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


class _Loader(yaml.SafeLoader):
    """Reads as kubectl does: a key that is there twice is refused, a bare `y` or `n` is a boolean, and 80.0 is 80."""

    bool_values: ClassVar[dict[str, bool]] = {**yaml.SafeLoader.bool_values, "y": True, "n": False}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number with a point as kubectl writes it in JSON: without, if nothing is behind it."""
        number: float = self.construct_yaml_float(node)
        return int(number) if number.is_integer() else number


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
