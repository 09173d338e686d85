"""The report for a person: what is wrong, why, and which RPCs to look at, in one glance.

Receives model.Report and a rich Console (which knows about NO_COLOR, pipes and widths) and prints. Called by
`latencyprobe report` and `slow`, and by the standalone agent at its end.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latencyprobe import stages
from latencyprobe.report import words
from latencyprobe.report.model import LatencyReport, Report, Result, Slow
from latencyprobe.report.units import duration_ns
from latencyprobe.report.words import Note
from latencyprobe.stages import Stage

_LINE_WIDTH = 100  # beyond it the eye loses the line
_WIDE = 110  # from here on there is room for the peers
_BAR = 14
_INDENT = 12  # of an objective's details: below its name
_HANGING = 2


def render(report: Report | LatencyReport, console: Console, title: str = "") -> None:
    """Print the report of one namespace. `title`: its name, where there may be several."""
    if not report.results:
        console.print(words.NO_OBJECTIVES, style="yellow", highlight=False)
        return
    console.print(_headline(report, title))
    console.print()
    console.print(_line(("State", "Objective", "SLI", "goal", "budget left"), console, "bold"))
    for result in report.results:
        state = Text(result.state.words, result.state.colour)
        figures = (words.percent(result.sli), f"{result.goal} %", words.budget(result))
        console.print(_line((state, words.name(result), *figures), console))
        for note in words.notes(result):
            _print_note(note, console)
    if more := words.omitted(report):
        console.print(more, highlight=False)
    if exchanges := words.slowest(report.results)[:5]:
        console.print()
        render_slowest(exchanges, console)


def render_slowest(exchanges: Sequence[tuple[Result, Slow]], console: Console) -> None:
    """Print exchanges with their stages as bars, what explains them below the largest stage, and what the bars mean."""
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("slowest", justify="right", no_wrap=True)
    table.add_column("stages", no_wrap=True)
    table.add_column("mostly, and why" if any(slow.evidence or slow.waited_for for _, slow in exchanges) else "mostly")
    if wide:
        table.add_column("target", overflow="fold")
        table.add_column("peer", overflow="fold")
        table.add_column("UTC", no_wrap=True)
    table.add_column("trace id", no_wrap=True)
    for result, slow in exchanges:
        said = "\n".join((words.largest(slow), *(words.explained(one, result, slow) for one in slow.evidence)))
        context = [result.target, slow.peer, slow.time[5:16].replace("T", " ")] if wide else []
        # as Text: a name in brackets is no markup
        row = [Text(words.short(slow.duration, 4)), _bar(slow, console), *map(Text, (said, *context, slow.trace_id))]
        table.add_row(*row)
        for one in slow.waited_for:
            table.add_row("", "", *map(Text, (words.waited_for(one), *("" for _ in context), one.trace_id)))
    console.print(table)
    drawn = {stage for _, slow in exchanges for stage, glyphs in _glyphs(slow) if glyphs}
    legend = [
        Text.assemble((_block(stage, console), _stage(stage).colour), f" {stage}")
        for stage in dict.fromkeys((*stages.BY_NAME, *sorted(drawn)))
        if stage in drawn
    ]
    console.print(Text("  ").join(legend))


def _headline(report: Report | LatencyReport, title: str) -> Text:
    line = Text.assemble((f"{title}: " if title else "", "bold"), words.met(report))
    if worst := words.worst(report):
        line.append("; worst: ").append(words.name(worst), "bold").append(" is ")
        line.append(worst.state.words, worst.state.colour)
    return line


def _line(cells: Sequence[str | Text], console: Console, style: str = "") -> Table:
    """Return one line of the objectives; all have the same columns."""
    line = Table.grid(padding=(0, 2, 0, 0))
    line.width = min(console.width, _LINE_WIDTH)
    line.add_column(width=_INDENT - 2, no_wrap=True)
    line.add_column(ratio=1, overflow="fold")
    for width in (10, 10, 12):
        line.add_column(width=width, justify="right", no_wrap=True)
    line.add_row(*cells, style=style)
    return line


def _print_note(note: Note, console: Console) -> None:
    """Print a note below its objective; what does not fit its line hangs, so that the next note is seen to begin."""
    width = min(console.width, _LINE_WIDTH) - _INDENT - _HANGING
    for i, line in enumerate(Text(note.text, "yellow" if note.advice else "").wrap(console, width)):
        line.rstrip()
        console.print(Padding(line, (0, 0, 0, _INDENT + (_HANGING if i else 0)), expand=False))


def _bar(slow: Slow, console: Console) -> Text:
    return Text.assemble(*((_block(stage, console) * glyphs, _stage(stage).colour) for stage, glyphs in _glyphs(slow)))


def _glyphs(slow: Slow) -> Iterable[tuple[str, int]]:
    """Yield the stages in order, each with how much of the bar it takes; what is too short takes nothing."""
    lengths_ns = [duration_ns(stage.duration) for stage in slow.stages]
    total_ns, reached_ns, reached = sum(lengths_ns) or 1, 0, 0
    for stage, length_ns in zip(slow.stages, lengths_ns, strict=True):
        reached_ns += length_ns
        glyphs = round(_BAR * reached_ns / total_ns) - reached
        reached += glyphs
        yield stage.stage, glyphs


def _block(stage: str, console: Console) -> str:
    return "█" if console.color_system and not console.no_color else _stage(stage).glyph


def _stage(name: str) -> Stage:
    """Return how to draw a stage; one of another version has no glyph of its own."""
    return stages.BY_NAME.get(name, Stage(name, -1, "?", "white", ""))
