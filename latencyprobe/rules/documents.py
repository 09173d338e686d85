"""Documents as YAML for a person: expressions of several lines as blocks, keys in our order, notes as comments."""

from collections.abc import Iterable
from typing import NamedTuple

import yaml

_WIDTH = 1000  # no line of an expression is folded


class Document(NamedTuple):
    """One YAML document. `notes`: what its reader has to know, written above it as comments."""

    content: dict[str, object]
    notes: tuple[str, ...] = ()


def text(documents: Iterable[Document]) -> str:
    """Return the documents as one stream of YAML."""
    return "---\n".join(
        "".join(f"# {note}\n" for note in document.notes)
        + yaml.dump(document.content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
        for document in documents
    )


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)
