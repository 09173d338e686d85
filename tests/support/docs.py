"""The commands that README, CONTRIBUTING, docs/ and examples/ tell people to type."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
_BLOCK = re.compile(r"```(?:sh)?\n(.*?)```", re.DOTALL)
_INDENTED = re.compile(r"(?m)^    ((?:latencyprobe|kubectl|helm|make) .*)$")
_INLINE = re.compile(r"`((?:latencyprobe|kubectl|helm|make) [^`]+)`")
_WRAPPERS = {"sudo", "then", "if", "do"}
_BETWEEN = re.compile(r"[|&;<>()]+")


class Command(NamedTuple):
    """`words`: the program first. `page`: relative to the repository."""

    page: str
    words: tuple[str, ...]


def commands(program: str) -> list[Command]:
    """Return what calls a program, each once: from blocks, indented lines and text, without what it is piped to."""
    found = {one: None for page in PAGES for one in _of(page) if one.words[0] == program}
    return list(found)


def _of(page: Path) -> Iterator[Command]:
    text = page.read_text()
    blocks = [line for block in _BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    without_blocks = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [
        *blocks,
        *_INDENTED.findall(without_blocks),
        *(span.replace("\\|", "|").replace("\n", " ") for span in _INLINE.findall(without_blocks)),
    ]
    for line in lines:
        for words in simple(line):
            yield Command(str(page.relative_to(ROOT)), words)


def simple(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the simple commands of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        tokens = list(lexer)
    except ValueError:  # a text that only looks like a command
        return
    words: list[str] = []
    to_file = False
    for token in [*tokens, ";"]:
        if _BETWEEN.fullmatch(token):
            to_file = "<" in token or ">" in token
            if not to_file:
                if words:
                    yield (Path(words[0]).name, *words[1:])
                words = []
        elif to_file:
            to_file = False
        elif words or token not in _WRAPPERS:
            words.append(token)
