"""JSON that is nested deeper than decoders go. Pure.

Who may create one pod may write managed fields of 10,000 levels on it, which the API server takes and every list of
pods then has. A decoder that gives up there would make us blind to all of them.
"""

import re
from typing import Any, TypeVar

import msgspec

LEVELS = 64  # all that we read of any object lies higher
API_LEVELS = 10_000  # that an API server takes: sigs.k8s.io/json, maxNestingDepth

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')

T = TypeVar("T")


def decoded(data: bytes, kind: type[T] | Any = Any) -> T | Any:
    """Decode an answer of the API server, however deep it is. Raises as msgspec.json.decode."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        return msgspec.json.decode(shallow(data), type=kind)


def shallow(data: bytes) -> bytes:
    """Return JSON in which null stands for what lies deeper than LEVELS. In Python, so it takes a second for 10 MB."""
    parts, level, kept = [], 0, 0
    for token in _TOKENS.finditer(data):
        match token[0][:1]:
            case b"{" | b"[":
                level += 1
                if level == LEVELS + 1:
                    parts += [data[kept : token.start()], b"null"]
            case b"}" | b"]":
                if level == LEVELS + 1:
                    kept = token.end()
                level -= 1
    return b"".join((*parts, data[kept:]))
