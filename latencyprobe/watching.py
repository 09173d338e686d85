"""Something that is shown again and again until somebody ends it: on a terminal in place, in a pipe, and where
TERM=dumb, one after another.

For commands that look at what is stored. The terminal is as it was at the end.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import click
from rich.console import Console

from latencyprobe.ending import ending
from latencyprobe.errors import LatencyProbeError
from latencyprobe.output import can_redraw


def watch(render: Callable[[], str], console: Console, interval_s: float, between: str = "") -> None:
    """Show what `render` returns at once and then every `interval_s`, until SIGINT or SIGTERM.

    It replaces what was there, as far as there is room; in a pipe `between` is a line in between. What fails at first
    is raised; later it is told in place of the figures, in a pipe beside them, and they come again when they can.
    """
    over = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(ending(over.set))
        try:
            text = render()
        except LatencyProbeError:
            if over.is_set():  # kubectl is ended by the same Ctrl-C
                return
            raise
        if can_redraw(console):
            stack.enter_context(console.screen(hide_cursor=True))
        while not over.is_set():
            _draw(text, console)
            if over.wait(interval_s):
                return
            try:
                text = render() if can_redraw(console) else between + render()
            except (LatencyProbeError, click.UsageError) as error:  # a target that is away for now is asked for wrongly
                text = "" if over.is_set() else _told(error, console)


def _told(error: LatencyProbeError | click.UsageError, console: Console) -> str:
    said = f"latencyprobe: {error.message if isinstance(error, click.UsageError) else error}\n"
    if can_redraw(console):
        return said
    click.echo(said, nl=False, err=True)  # a program reads the figures
    return ""


def _draw(text: str, console: Console) -> None:
    """Write what was captured; on a terminal in place of what was there, and as much as it has lines for."""
    if not can_redraw(console):
        console.file.write(text)
        console.file.flush()
        return
    lines = text.splitlines()
    room = console.height - 1
    if len(lines) > room:
        left_out = len(lines) - room + 1
        lines = [*lines[: room - 1], f"... {left_out} more lines: a taller window, --limit, --target or --peer"]
    console.file.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    console.file.flush()
