"""`latencyprobe top` on a terminal: draws rows, reads keys. On a pipe, and with --plain, tables one after the other."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import msgspec
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from latencyprobe import stages
from latencyprobe.output import has_blocks
from latencyprobe.report import units
from latencyprobe.shares import shares
from latencyprobe.slo.evaluate import State
from latencyprobe_agent.tools.top.view import HELP, HELP_OF_CLUSTER, By, Row, View, total

_BAR = 16
_SHORTEST = 6  # a name's column, however narrow the terminal
_KEY = re.compile(r"\x1b\[[\d;]*[A-Za-z~]|.", re.DOTALL)
_AROUND = 4  # lines that are no rows


class Columns(NamedTuple):
    """What a table shows from a width on: names, then figures; a bar of the stages, and the name of the longest."""

    least: int
    names: tuple[str, ...]
    figures: tuple[str, ...]
    bar: bool = False
    mostly: bool = True


Layout = Sequence[Columns]  # the widest first; the last one fits all


def _duration(ns: int | None) -> Text:
    return Text("" if ns is None else units.duration(ns))


def _share(row: Row) -> Text:
    plain = f"{float(f'{100 * row.errors:.3g}'):.9f}".rstrip("0").rstrip(".")
    return Text(f"{plain} %" if row.errors else "", "bold red")


def _state(row: Row) -> Text:
    state = _STATES[row.state]
    return Text(state.words, state.colour)


_STATES = {state.value: state for state in State}
_FIGURES: dict[str, tuple[int, Callable[[Row], Text]]] = {
    "RPC/s": (11, lambda row: Text(f"{row.rate:,.1f}")),
    "p50": (6, lambda row: _duration(row.p50_ns)),
    "p99": (6, lambda row: _duration(row.p99_ns)),
    "other p50": (9, lambda row: _duration(row.other_p50_ns)),
    "other p99": (9, lambda row: _duration(row.other_p99_ns)),
    "errors": (6, _share),
    "bad": (6, _share),
    "state": (10, _state),
}
_OF_HOST = ("RPC/s", "p50", "p99", "errors")
HOST = (
    Columns(110, ("target", "side", "process", "peer"), _OF_HOST, bar=True),
    Columns(80, ("side", "process", "peer"), _OF_HOST),
    Columns(0, ("process", "peer"), _OF_HOST, mostly=False),
)
_ENDS = ("p50", "p99", "other p50", "other p99")
CLUSTER = (
    Columns(150, ("target", "side", "objective"), ("RPC/s", *_ENDS, "bad", "state"), bar=True),
    Columns(110, ("side", "objective"), ("RPC/s", "p50", "p99", "other p99", "bad", "state")),
    Columns(80, ("objective",), ("RPC/s", "p99", "other p99", "bad", "state"), mostly=False),
    Columns(0, ("objective",), ("RPC/s", "p99", "bad", "state"), mostly=False),
)

PEERS = (
    Columns(150, ("target", "side", "objective", "peer"), ("RPC/s", "p50", "p99", "bad", "state"), mostly=False),
    Columns(110, ("side", "objective", "peer"), ("RPC/s", "p50", "p99", "bad", "state"), mostly=False),
    Columns(80, ("objective", "peer"), ("RPC/s", "p99", "bad"), mostly=False),
    Columns(0, ("objective", "peer"), ("p99", "bad"), mostly=False),
)


def layout(view: View) -> Layout:
    """Return the columns of a view."""
    if not view.of_cluster:
        return HOST
    return PEERS if view.by is By.PEER else CLUSTER


def table(shown: Sequence[Row], console: Console, room: int | None = None, layout: Layout = HOST) -> Table:
    """Return rows as a table, at most `room` of them. Figures are whole; names share what is left of the width: the
    short ones of it what they need."""
    columns = next(one for one in layout if console.width >= one.least)
    names, figures = columns.names, columns.figures
    taken = sum(_FIGURES[name][0] for name in figures) + (_BAR + 2) * columns.bar
    left = console.width - taken - 2 * (len(names) + len(figures) + columns.mostly)
    texts = [*names, *(["mostly"] if columns.mostly else [])]
    needs = {name: max(map(cell_len, (name, *(getattr(row, name) for row in shown[:room])))) for name in texts}
    longest = shares(needs, max(left, _SHORTEST * len(texts)))
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        found.add_column(name, no_wrap=True, overflow="ellipsis", max_width=longest[name])
    for name in figures:
        found.add_column(name, justify="right", no_wrap=True, min_width=_FIGURES[name][0])
    if columns.bar:
        found.add_column("stages", no_wrap=True, min_width=_BAR)
    if columns.mostly:
        found.add_column("mostly", no_wrap=True, overflow="ellipsis", max_width=longest["mostly"])
    for row in shown[:room]:
        words = (Text(getattr(row, name)) for name in names)
        beside = [*([_bar(row, console)] if columns.bar else ()), *((Text(row.mostly),) if columns.mostly else ())]
        found.add_row(*words, *(_FIGURES[name][1](row) for name in figures), *beside)
    return found


def headline(view: View, found: Sequence[Row], shown: Sequence[Row]) -> Text:
    """Return the line above the rows: all together, what is left out, and by what they are sorted."""
    text = Text(f"{total(found):,.0f} RPC/s", "bold")
    text.append(f"  {units.number(len(view.all_of(found)), 'row')}, sorted by {view.sort.value}", "none")
    if view.wanted or view.typing:
        text.append(f"  /{view.wanted}{'_' if view.typing else f': {len(shown)} of them'}", "cyan")
    return text.append("  paused", "bold yellow") if view.paused else text


def as_json(row: Row, unix_ns: int) -> str:
    """Return a row as one JSON object with units in its names, and what it has. Of an objective shares are of bad
    ones."""
    fields = {"time": units.iso(unix_ns)} | {name: has for name, has in row._asdict().items() if has not in ("", None)}
    bad = "bad_" if row.objective else ""
    fields |= {f"{stage}_{bad}share": round(share, 4) for stage, share in row.stages}
    if row.objective:
        fields["bad_share"] = fields.pop("errors")
    del fields["stages"]
    fields.pop("peers", None)
    return msgspec.json.encode(fields).decode()


class Keys(AbstractContextManager["Keys"]):
    """Keys that are pressed on the terminal of standard input, without waiting for Enter; none where it is none, or is
    another job's: who takes it in the background is stopped."""

    def __init__(self) -> None:
        self._before = ExitStack()
        self._taken = False

    def __enter__(self) -> "Keys":
        self._taken = bool(sys.stdin and sys.stdin.isatty()) and not _in_background(sys.stdin.fileno())
        if self._taken:
            number = sys.stdin.fileno()
            self._before.callback(termios.tcsetattr, number, termios.TCSADRAIN, termios.tcgetattr(number))
            tty.setcbreak(number)
        return self

    def __exit__(self, *_: object) -> None:
        self._before.close()

    def pressed(self) -> Iterable[str]:
        """Return what was pressed since the last call."""
        text = ""
        while self._taken and select.select([sys.stdin], [], [], 0)[0] and (read := os.read(sys.stdin.fileno(), 64)):
            text += read.decode(errors="replace")
        return split(text)


def split(text: str) -> list[str]:
    """Return the keys of what a terminal sent: an arrow and the like are one each."""
    return _KEY.findall(text)


def _in_background(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:  # it controls no jobs of this session
        return False


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

    def draw(self, view: View, found: Sequence[Row], told: Text) -> None:
        """Show the rows that fit. `told`: what is to be known of them all."""
        shown, room = view.shown(found), max(1, self._console.height - _AROUND)
        first = max(0, min(view.first, len(shown) - 1))  # there may be fewer than when a key was pressed
        keys = HELP_OF_CLUSTER if view.of_cluster else HELP
        below = Text.assemble((_hidden(first, len(shown) - first - room), "yellow"), (keys, "dim"), no_wrap=True)
        none = Text("no RPC in this interval", "dim")
        body = table(shown[first:], self._console, room, layout(view)) if shown else none
        self._live.update(Group(headline(view, found, shown), told, body, below), refresh=True)


def _hidden(above: int, below: int) -> str:
    """Return how many rows have no room on the screen, and how they are reached; empty where all have."""
    said = [f"{above} above"] * (above > 0) + [f"and {below} more"] * (below > 0)
    return f"{', '.join(said)}: j k scroll  " if said else ""


def print_plain(console: Console, view: View, found: Sequence[Row], told: Text) -> None:
    """Print the rows below what was printed before."""
    shown = view.shown(found)
    console.print(Text.assemble(time.strftime("%H:%M:%S UTC ", time.gmtime()), headline(view, found, shown)))
    if told:
        console.print(told)
    if shown:
        console.print(table(shown, console, layout=layout(view)))
    console.print()


def _bar(row: Row, console: Console) -> Text:
    text, reached = Text(), 0.0
    for name, share in row.stages:
        begin, end = round(_BAR * reached), round(_BAR * (reached + share))
        stage = stages.BY_NAME[name]
        glyph = "█" if has_blocks(console) else stage.glyph
        text.append(glyph * (end - begin), stage.colour)
        reached += share
    return text
