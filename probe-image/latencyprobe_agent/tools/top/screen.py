"""`latencyprobe top` on a terminal: draws rows, reads keys. On a pipe, and with --plain, tables one after the other."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from latencyprobe import stages
from latencyprobe.report import units
from latencyprobe_agent.tools.top.view import HELP, Row, View

_BAR = 16
_AROUND = 4  # lines that are no rows
_NARROW, _WIDE = 80, 110  # below the one only processes and peers have room, from the other on the bar has too
_NAMES = ("target", "side", "process", "peer")
_FIGURES = {"RPC/s": 11, "p50": 6, "p99": 6, "errors": 6}


def table(shown: Sequence[Row], console: Console, room: int | None = None) -> Table:
    """Return rows as a table, at most `room` of them. Figures are whole; names get what is left of the width."""
    wide, narrow = console.width >= _WIDE, console.width < _NARROW
    names = ("process", "peer") if narrow else ("side", "process", "peer") if not wide else _NAMES
    left = console.width - sum(_FIGURES.values()) - (_BAR + 2) * wide - 2 * (len(names) + len(_FIGURES) + 1)
    longest = max(6, left // (len(names) + (not narrow)))
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        found.add_column(name, no_wrap=True, overflow="ellipsis", max_width=longest)
    for name, width in _FIGURES.items():
        found.add_column(name, justify="right", no_wrap=True, min_width=width)
    if wide:
        found.add_column("stages", no_wrap=True, min_width=_BAR)
    if not narrow:
        found.add_column("mostly", no_wrap=True, overflow="ellipsis", max_width=longest)
    for row in shown[:room]:
        words = [getattr(row, name) for name in names]
        words += [f"{row.rate:,.1f}", units.duration(row.p50_ns), units.duration(row.p99_ns)]
        errors = Text(f"{100 * row.errors:.3g} %" if row.errors else "", "bold red")
        beside = [*([_bar(row, console)] if wide else ()), *(() if narrow else (Text(row.mostly),))]
        found.add_row(*map(Text, words), errors, *beside)
    return found


def headline(view: View, found: Sequence[Row], shown: Sequence[Row], lost: int) -> Text:
    """Return the line above the rows: all together, what is left out, and by what they are sorted."""
    text = Text(
        f"{sum(row.rate for row in found if row.side == 'server') or sum(row.rate for row in found):,.0f} RPC/s", "bold"
    )
    text.append(f"  {units.number(len(found), 'row')}, sorted by {view.sort.value}", "none")
    if view.wanted or view.typing:
        text.append(f"  /{view.wanted}{'_' if view.typing else f': {len(shown)} of them'}", "cyan")
    if lost:
        text.append(f"  {lost:,} lost", "bold red")
    return text.append("  paused", "bold yellow") if view.paused else text


def as_json(row: Row, unix_ns: int) -> str:
    """Return a row as one JSON object with units in its names."""
    shares = {f"{stage}_share": round(share, 4) for stage, share in row.stages}
    fields = {"time": units.iso(unix_ns), **row._asdict(), **shares}
    del fields["stages"]
    return msgspec.json.encode(fields).decode()


class Keys(AbstractContextManager["Keys"]):
    """Keys that are pressed on the terminal of standard input, without waiting for Enter; none where it is none."""

    def __init__(self) -> None:
        self._before = ExitStack()

    def __enter__(self) -> "Keys":
        if sys.stdin and sys.stdin.isatty():
            number = sys.stdin.fileno()
            self._before.callback(termios.tcsetattr, number, termios.TCSADRAIN, termios.tcgetattr(number))
            tty.setcbreak(number)
        return self

    def __exit__(self, *_: object) -> None:
        self._before.close()

    def pressed(self) -> Iterable[str]:
        """Return what was pressed since the last call."""
        if not (sys.stdin and sys.stdin.isatty()):
            return ()
        text = ""
        while select.select([sys.stdin], [], [], 0)[0] and (read := os.read(sys.stdin.fileno(), 64)):
            text += read.decode(errors="replace")
        return text if not text.startswith("\x1b[") else ()  # arrows and the like mean nothing here


class Screen(AbstractContextManager["Screen"]):
    """The whole terminal, until it is left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> "Screen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, view: View, found: Sequence[Row], lost: int) -> None:
        """Show the rows that fit."""
        shown, room = view.shown(found), max(1, self._console.height - _AROUND)
        below = Text(HELP, "dim")
        if len(shown) > room:
            below.append(f"  {len(shown) - room} more rows have no room", "yellow")
        body = table(shown, self._console, room) if shown else Text("no RPC in this interval", "dim")
        self._live.update(Group(headline(view, found, shown, lost), Text(), body, below), refresh=True)


def print_plain(console: Console, view: View, found: Sequence[Row], lost: int) -> None:
    """Print the rows below what was printed before."""
    shown = view.shown(found)
    console.print(Text.assemble(time.strftime("%H:%M:%S "), headline(view, found, shown, lost)))
    if shown:
        console.print(table(shown, console))
    console.print()


def _bar(row: Row, console: Console) -> Text:
    text, reached = Text(), 0.0
    for name, share in row.stages:
        begin, end = round(_BAR * reached), round(_BAR * (reached + share))
        stage = stages.BY_NAME[name]
        glyph = "█" if console.color_system and not console.no_color else stage.glyph
        text.append(glyph * (end - begin), stage.colour)
        reached += share
    return text
