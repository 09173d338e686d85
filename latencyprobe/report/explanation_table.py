"""One exchange explained, for a terminal: the stages of its halves one below the other, all on one axis.

Receives an Explanation and a rich Console, and prints.
"""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latencyprobe.report import exchanges, hanging
from latencyprobe.report.explanation import Explanation, Half, Line
from latencyprobe.report.units import duration_ns

_NARROWEST, _WIDEST = 10, 60  # of the axis
_BESIDE_AXIS = 40  # names, durations, shares
_INDENT = 2


def render(found: Explanation, console: Console) -> None:
    """Print what is known of one RPC, half by half."""
    console.print(Text.assemble("trace ", (found.trace_id, "bold")))
    names = max((len(row.mark.label) for half in found.halves for row in half.rows), default=0)
    for half in found.halves:
        console.print()
        console.print(_title(half))
        console.print(Padding(_waterfall(half, console, names), (0, 0, 0, _INDENT), expand=False))
        for line in half.lines:
            _print_line(line, console)
    if found.said:
        console.print(f"\n{found.said}", soft_wrap=True)


def _title(half: Half) -> Text:
    state = half.of.result.state
    failed = (f"; {half.failed}", "bold red") if half.failed else ""
    return Text.assemble((half.duration, "bold"), f" {half.title} ", (state.words, state.colour), failed)


def _waterfall(half: Half, console: Console, names: int) -> Table:
    """`names`: the width of the longest name of all halves, so that their axes lie below each other."""
    axis = max(_NARROWEST, min(_WIDEST, console.width - _BESIDE_AXIS))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=names)
    table.add_column(width=axis, no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    for stage, row in zip(half.of.slow.stages, half.rows, strict=True):
        begin, end = (round(axis * at / 100) for at in (row.mark.start, row.mark.start + row.mark.width))
        drawn = exchanges.block(stage.stage, console) * (end - begin) or "·" * (duration_ns(stage.duration) > 0)
        bar = Text(" " * min(begin, axis - len(drawn))).append(drawn, exchanges.stage_of(stage.stage).colour)
        table.add_row(Text(stage.stage), bar, row.duration, row.share)
    return table


def _print_line(line: Line, console: Console) -> None:
    hanging.render(f"{line.lead} {line.said}", console, _INDENT, console.width)
    if line.trace_id:  # a command stays in one piece, to be copied
        call = line.command or f"trace {line.trace_id} ({line.elsewhere})"
        console.print(Text(f"{' ' * (_INDENT + len('why: '))}{call}"), soft_wrap=True)
