"""Documents as YAML, with notes as comments."""

from collections.abc import Iterable
from typing import NamedTuple

from latencyprobe import yaml_text


class Document(NamedTuple):
    """One YAML document. `notes`: what its reader has to know, written above it as comments."""

    content: dict[str, object]
    notes: tuple[str, ...] = ()


def text(documents: Iterable[Document]) -> str:
    """Return the documents as one stream of YAML."""
    return "---\n".join(
        "".join(f"# {note}\n" for note in document.notes) + yaml_text.dump(document.content) for document in documents
    )
