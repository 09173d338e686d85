"""Something that is shown again and again until somebody ends it: on a terminal in place, in a pipe one after another.

For commands that look at what is stored; called by reporting.py. The terminal is as it was at the end.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack

from rich.console import Console

from latencyprobe.ending import ending
from latencyprobe.errors import LatencyProbeError


def watch(render: Callable[[], str], console: Console, interval_s: float, between: str = "") -> None:
    """Show what `render` returns at once and then every `interval_s`, until SIGINT or SIGTERM.

    It replaces what was there, as far as there is room; in a pipe `between` is a line in between. What fails at first
    is raised; later it is told in place of the figures, which come again when they can.
    """
    over = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(ending(over.set))
        text = render()
        if console.is_terminal:
            stack.enter_context(console.screen(hide_cursor=True))
        while not over.is_set():
            _draw(text, console)
            if over.wait(interval_s):
                return
            text = _again(render)
            if not console.is_terminal:
                text = between + text


def _again(render: Callable[[], str]) -> str:
    try:
        return render()
    except LatencyProbeError as error:
        return f"latencyprobe: {error}\n"


def _draw(text: str, console: Console) -> None:
    """Write what was captured; on a terminal in place of what was there, and as much as it has lines for."""
    if not console.is_terminal:
        console.file.write(text)
        console.file.flush()
        return
    lines = text.splitlines()
    room = console.height - 1
    if len(lines) > room:
        left_out = len(lines) - room + 1
        lines = [*lines[: room - 1], f"... {left_out} more lines: a higher window, --limit, --target or --peer"]
    console.file.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    console.file.flush()
