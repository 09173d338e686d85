"""The report for a person: what is wrong, why, and which RPCs to look at, in one glance.

Receives model.Report and a rich Console (which knows about NO_COLOR, pipes and widths) and prints.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from latencyprobe.report import drawing, exchanges, hanging, headline, notes, words
from latencyprobe.report.headline import Age
from latencyprobe.report.model import LatencyReport, Report, Result

_LINE_WIDTH = 100  # beyond it the eye loses the line
_INDENT = 12  # of an objective's details: below its name
_FIGURES, _BETWEEN = (10, 10, 12), 2  # their widths, and between them
_SPARKLINE, _DRAWN_FROM = 40, 90  # characters of a burn-down, and of a line that has room for it


def render(report: Report | LatencyReport, console: Console, title: str = "", age: Age = headline.NOW) -> None:
    """Print the report of one namespace. `title`: its name, where there may be several."""
    if not report.results:
        console.print(words.no_objectives(report), style="yellow", highlight=False)
        return
    console.print(_headline(report, title, age))
    console.print()
    apart = max(len(words.name(one)) for one in report.results) > _room(console)
    console.print(*_lines(("State", "Objective", "SLI", "goal", "budget left"), console, "bold", apart=apart))
    for result in report.results:
        state = Text(result.state.words, result.state.colour)
        figures = (words.sli(result), f"{result.goal} %", words.budget(result))
        console.print(*_lines((state, words.name(result), *figures), console, apart=apart))
        _print_burn_down(result, console)
        for note in notes.told(result):
            hanging.render(note.text, console, _INDENT, _width(console), "yellow" if note.advice else "")
    if more := headline.omitted(report):
        console.print(more, highlight=False)
    if found := words.slowest(report.results)[:5]:
        console.print()
        exchanges.render(found, console)


def _headline(report: Report | LatencyReport, title: str, age: Age) -> Text:
    line = Text.assemble((f"{title}: " if title else "", "bold"), headline.met(report))
    if worst := headline.worst(report):
        line.append("; worst: ").append(worst.name, "bold").append(" is ")
        line.append(worst.state.words, worst.state.colour)
    return line.append("; ").append_text(of_age(age)) if age.text else line


def of_age(age: Age) -> Text:
    """Return how old figures are, in colour where that is a warning."""
    return Text(age.text, "yellow" if age.stale else "")


def _lines(cells: Sequence[str | Text], console: Console, style: str = "", *, apart: bool) -> Iterable[Table]:
    """Yield one line of the objectives; all have the same columns. `apart`: the figures are in a line of their own."""
    names = (Column(width=_INDENT - _BETWEEN, no_wrap=True), Column(ratio=1, overflow="fold"))
    figures = [Column(width=width, justify="right", no_wrap=True) for width in _FIGURES]
    whole = [((*names, *figures), cells)]
    for columns, texts in [(names, cells[:2]), ((Column(ratio=1), *figures), ("", *cells[2:]))] if apart else whole:
        line = Table.grid(*columns, padding=(0, _BETWEEN, 0, 0))
        line.width = _width(console)
        line.add_row(*texts, style=style)
        yield line


def _room(console: Console) -> int:
    """Return how many characters a name has beside its figures."""
    return _width(console) - _INDENT - sum(_BETWEEN + width for width in _FIGURES)


def _width(console: Console) -> int:
    return min(console.width, _LINE_WIDTH)


def _print_burn_down(result: Result, console: Console) -> None:
    """Print how the budget went as one line, where there is room and letters for it."""
    if (
        result.burn_down is None
        or len(result.burn_down.left) < 2
        or console.width < _DRAWN_FROM
        or console.options.ascii_only
    ):
        return
    line = Text.assemble(
        "budget since ",
        f"{words.since(result)} ",
        (drawing.sparkline(result.burn_down.left, _SPARKLINE), result.state.colour),
        f" {words.budget(result)}",
    )
    console.print(Padding(line, (0, 0, 0, _INDENT), expand=False))
