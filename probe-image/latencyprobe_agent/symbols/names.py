"""A symbol as a person reads it: demangled, printable, bounded."""

import re

import pycxxfilt

from latencyprobe.text import printable
from latencyprobe_agent.symbols.messages import NAME_BYTES

_RUST_HASH = re.compile(r"::h[0-9a-f]{16}\Z")  # what the older mangling of Rust appends


def readable(raw: bytes) -> str:
    """Return the name of a symbol as its string table has it."""
    symbol = raw[:NAME_BYTES].decode(errors="replace")
    name = symbol
    if symbol.startswith(("_Z", "_R")):
        try:
            name = _RUST_HASH.sub("", pycxxfilt.demangle(symbol) or symbol)
        except ValueError:  # it only looks like a mangled one
            name = symbol
    return bounded(name, cut=len(raw) > NAME_BYTES)


def bounded(text: str, *, cut: bool = False) -> str:
    """Return text that is printable, and not longer than a name may be."""
    if cut or len(text) > NAME_BYTES:
        text = text[: NAME_BYTES - 1] + "…"
    return printable(text)
