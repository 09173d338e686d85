"""Text that others chose: names of processes, pods, functions, files."""

UNKNOWN = "[unknown]"  # the name of a function that has none


def printable(text: str) -> str:
    """Return text without what a terminal, a line or XML would take for something else: U+FFFD stands in its place."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def frame(name: str) -> str:
    """Return the name of a function as a folded stack has it, where `;` ends a frame: `:` stands in its place."""
    return printable(name.replace(";", ":")) or "?"
