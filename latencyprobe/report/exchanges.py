"""Slow exchanges for a person: where the time of each went, and what explains it.

Receives words.Exchange and a rich Console, and prints; or returns one for programs.
"""

from collections.abc import Iterable, Sequence, Set

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from latencyprobe import stages
from latencyprobe.output import has_blocks
from latencyprobe.report import words
from latencyprobe.report.model import Slow
from latencyprobe.report.units import duration_ns
from latencyprobe.report.words import Exchange
from latencyprobe.stages import Stage

_NARROW = 72  # below it a trace id has no column
_WIDE = 110  # from here on what is known of an exchange has columns
_WIDER = 140  # and the peer one of its own
_LONG = 40  # a sentence beyond it is broken into too many lines beside columns
_MORE_ROOM = 25  # as much wider each of these widths has to be where there is one
_BAR = 14


def document(one: Exchange) -> str:
    """Return an exchange for a program, with the target and the end that it was measured at: JSON, one line."""
    result = one.result
    about = {
        "namespace": one.namespace,
        "probe": result.probe,
        "target": result.target,
        "perspective": result.perspective,
    }
    return msgspec.json.encode(about | msgspec.to_builtins(one.slow)).decode()


def render(exchanges: Sequence[Exchange], console: Console, *, titled: bool = False) -> None:
    """Print exchanges with their stages as bars, what explains them below the largest stage, and what the bars mean.
    `titled`: with their namespaces."""
    sentences = [said for one in exchanges for said in _sentences(one)]
    long = any(len(said) > _LONG for said in sentences)
    room = console.width - (_MORE_ROOM if long else 0)
    narrow, wide, wider = room < _NARROW, room >= _WIDE, room >= _WIDER
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("slowest", justify="right", no_wrap=True)
    table.add_column("stages", no_wrap=True)
    table.add_column("mostly, and why" if sentences else "mostly", overflow="fold")
    if wide:
        table.add_column("seen at", overflow="fold")
        if wider:
            table.add_column("peer", overflow="fold")
        table.add_column("UTC", no_wrap=True)
    if not narrow:
        table.add_column("trace id", no_wrap=True)
    for exchange in exchanges:
        result, slow = exchange.result, exchange.slow
        about = [words.seen_at(exchange, titled=titled), slow.peer, slow.time[5:19].replace("T", " ")]
        inside = about if wider else [about[0], about[2]] if wide else []  # in columns of their own
        beside = [*inside, *(() if narrow else (slow.trace_id,))]
        peer = [] if wider or not slow.peer else [f"peer {slow.peer}"]
        below = ("; " if narrow or long else "\n").join(
            [*(() if wide else about[:1]), *peer, *(() if wide else about[2:])]
        )
        explained = (words.explained(one, result, slow) for one in slow.evidence)
        lines = (words.largest(slow), *explained, below, slow.trace_id if narrow else "")
        said = "\n".join(filter(None, lines))
        # as Text: a name in brackets is no markup
        table.add_row(Text(words.short(slow.duration, 4)), _bar(slow, console), *map(Text, (said, *beside)))
        for one in slow.waited_for:
            said = f"{words.waited_for(one)}\n{one.trace_id}" if narrow else words.waited_for(one)
            table.add_row("", "", *map(Text, (said, *("" for _ in inside), *(() if narrow else (one.trace_id,)))))
    console.print(table)
    _print_legend({stage for one in exchanges for stage, glyphs in _glyphs(one.slow) if glyphs}, console)


def _sentences(one: Exchange) -> Iterable[str]:
    yield from (words.explained(hit, one.result, one.slow) for hit in one.slow.evidence)
    yield from map(words.waited_for, one.slow.waited_for)


def _print_legend(drawn: Set[str], console: Console) -> None:
    """Print what the pieces of the bars mean; a line is broken only between two of them."""
    legend: dict[tuple[str, str], list[str]] = {}  # stages of one kind share a letter and a colour
    for stage in dict.fromkeys((*stages.BY_NAME, *sorted(drawn))):
        if stage in drawn:
            legend.setdefault((block(stage, console), stage_of(stage).colour), []).append(stage)
    lines: list[Text] = []
    for piece, names in legend.items():
        one = Text.assemble(piece, f" {', '.join(names)}")
        if lines and lines[-1].cell_len + 2 + one.cell_len <= console.width:
            lines[-1].append("  ").append_text(one)
        else:
            lines.append(one)
    console.print(*lines, sep="\n")


def _bar(slow: Slow, console: Console) -> Text:
    return Text.assemble(*((block(stage, console) * glyphs, stage_of(stage).colour) for stage, glyphs in _glyphs(slow)))


def _glyphs(slow: Slow) -> Iterable[tuple[str, int]]:
    """Yield the stages in order, each with how much of the bar it takes; what is too short takes nothing."""
    lengths_ns = [duration_ns(stage.duration) for stage in slow.stages]
    total_ns, reached_ns, reached = sum(lengths_ns) or 1, 0, 0
    for stage, length_ns in zip(slow.stages, lengths_ns, strict=True):
        reached_ns += length_ns
        glyphs = round(_BAR * reached_ns / total_ns) - reached
        reached += glyphs
        yield stage.stage, glyphs


def block(stage: str, console: Console) -> str:
    """Return what a stage is drawn with: its letter where there are no colours, or no blocks."""
    return "█" if has_blocks(console) else stage_of(stage).glyph


def stage_of(name: str) -> Stage:
    """Return how to draw a stage; one of another version has no glyph of its own."""
    return stages.BY_NAME.get(name, Stage(name, -1, "?", "white", ""))
