"""Files that say which of them cannot be written: a full disk is one line of complaint, not a traceback.

`cli.py` gives each process such a standard output.
"""

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from latencyprobe.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console


class _File(io.FileIO):
    """A file that is called something. `file`: a path to append to, or a descriptor, which stays open."""

    def __init__(self, file: Path | int, called: str) -> None:
        super().__init__(file, "a" if isinstance(file, Path) else "w", closefd=isinstance(file, Path))
        self._called = called

    def write(self, data: Any, /) -> int:
        """Raise OutputError, or BrokenPipeError, which click and Rich take for an end without a word."""
        try:
            return super().write(data)
        except OSError as error:
            drop(self)
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputError(f"{self._called}: {error.strerror}") from error


def checked(stream: TextIO) -> TextIO:
    """Return standard output whose errors are OutputError, and which writes ? for what its encoding has not."""
    file = io.BufferedWriter(_File(stream.fileno(), "standard output"))
    return io.TextIOWrapper(file, stream.encoding, "replace", line_buffering=stream.isatty())


def utf_8() -> None:
    """Let standard output be UTF-8 from now on, whatever the terminal has: a program reads it."""
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(encoding="utf-8")


def appending(path: Path) -> TextIO:
    """Open an ASCII file, written line by line, whose errors are OutputError."""
    return io.TextIOWrapper(io.BufferedWriter(_File(path, str(path))), "ascii", line_buffering=True)


def figures_console() -> "Console":
    """Return a console for figures, 120 columns wide where it is no terminal: a pipe has no width of its own. Brackets
    and colons are no markup: names come from others."""
    from rich.console import Console  # noqa: PLC0415 - an agent draws nothing

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 120
    return console


def can_redraw(console: "Console") -> bool:
    """Return whether it is a terminal on which what is there can be replaced; else it is written on as a pipe is."""
    return console.is_terminal and not console.is_dumb_terminal


def has_blocks(console: "Console") -> bool:
    """Return whether pieces of a bar are told by colour, and blocks can be written; else they are letters."""
    return bool(console.color_system) and not console.no_color and not console.options.ascii_only


def drop(stream: TextIO | io.IOBase) -> None:
    """Let go of what the stream cannot write. The interpreter would try again, and complain, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
