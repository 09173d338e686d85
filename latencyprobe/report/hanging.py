"""Sentences on a terminal that hang: what does not fit its line goes on further right, so that the next one is seen to
begin; and no figure is parted from its `%`.

Receives text and a rich Console, and prints.
"""

import re

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

HANGING = 2
_TOGETHER = "\ue000"  # for a space at which rich is not to break a line: it breaks at all that Unicode has


def render(said: str, console: Console, indent: int, width: int, style: str = "") -> None:
    """Print a sentence from column `indent` on, in lines that end before column `width`."""
    kept = Text(re.sub(r"(?<=\d) (?=%)", _TOGETHER, said))
    for number, line in enumerate(kept.wrap(console, max(1, width - indent - HANGING))):
        text = Text(line.plain.rstrip().replace(_TOGETHER, " "), style)
        console.print(Padding(text, (0, 0, 0, indent + (HANGING if number else 0)), expand=False))
