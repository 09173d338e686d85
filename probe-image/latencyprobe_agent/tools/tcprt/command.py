"""`latencyprobe tcprt`: request/response tasks at the TCP layer, live or from recorded operations.

Parses options, reads records, prints them or writes the original's two files. docs/design/evidence.md, "TCP-RT".
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from latencyprobe.options import Duration
from latencyprobe.output import appending
from latencyprobe_agent.signals.table import TASKS
from latencyprobe_agent.tools import tail
from latencyprobe_agent.tools.options import Options, tool_options
from latencyprobe_agent.tools.tcprt import rows as tcprt_rows
from latencyprobe_agent.tools.tcprt import v6
from latencyprobe_agent.tools.tcprt.averages import Averages
from latencyprobe_agent.tools.tcprt.decoded import decoded
from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.ports import Ports, Range, parse_ports
from latencyprobe_agent.tools.tcprt.replay import replay

LOG, STATISTICS = "rt-network-log", "rt-network-stats"  # file names of the original


class PortList(click.ParamType[Any]):
    """Ports and ranges such as 3306,8000-8999."""

    name = "ports"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], tuple[Range, ...]]:
        """Return exact ports and ranges."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_ports(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(
    epilog="""\b
Examples:
  latencyprobe tcprt --lports 3306                       what this host's MySQL serves
  latencyprobe tcprt --lports 80,8000-8999 --pports 5432 -o json
  latencyprobe tcprt --lports 3306 --format v6 --stats --log-dir /var/log/tcprt
  latencyprobe tcprt --replay operations.jsonl --format v6
\b
Without ports every connection is followed whose beginning was seen: as served by the end that accepted it.
Times are UTC.
"""
)
@click.option("--lports", type=PortList(), default="", metavar="PORTS", help="Serve side: these local ports, 80,90-99.")
@click.option("--pports", type=PortList(), default="", metavar="PORTS", help="Asking side: these ports of the peer.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["native", "v6"]),
    default="native",
    show_default=True,
    help="v6: the lines of Alibaba's TCP-RT, byte for byte.",
)
@click.option("--stats", is_flag=True, help="Averages per port, 10 s after the start and then every interval.")
@click.option("--stats-interval", type=Duration(), default="60s", show_default=True, help="Between two averages.")
@click.option(
    "--log-dir",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help=f"Append V6 lines to DIR/{LOG} and averages to DIR/{STATISTICS}, and print nothing.",
)
@click.option(
    "--buffer",
    type=click.Choice(["drop", "overwrite"]),
    default="drop",
    show_default=True,
    help="When records come faster than they are read: lose the newest, or the oldest.",
)
@click.option(
    "--replay",
    "recorded",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read recorded operations, JSON lines, in place of the kernel; - is stdin.",
)
@tool_options
def tcprt(
    *,
    lports: tuple[tuple[int, ...], tuple[Range, ...]],
    pports: tuple[tuple[int, ...], tuple[Range, ...]],
    form: str,
    stats: bool,
    stats_interval: float,
    log_dir: Path | None,
    buffer: str,
    recorded: str | None,
    options: Options,
) -> None:
    """Split every request and response into receiving, serving and sending until the last ACK."""
    context = click.get_current_context()
    if options.output == "json" and (form == "v6" or (stats and not log_dir)):
        raise click.UsageError("-o json excludes --format v6, and --stats without --log-dir", context)
    ports = Ports(*lports, *pports)
    with ExitStack() as files:
        printer = _Printer(
            "v6" if form == "v6" or log_dir else options.output,
            (lambda start_ns: Averages(ports, start_ns, round(stats_interval * 1e9))) if stats else None,
            *(_to_files(log_dir, files) if log_dir else (_to_stdout, _to_stdout)),
        )
        if recorded is None:
            _live(options, buffer, ports, printer)
        else:
            lines = files.enter_context(click.open_file(recorded, "rb"))
            _replayed(replay(lines, "stdin" if recorded == "-" else recorded), printer)


def _live(options: Options, buffer: str, ports: Ports, printer: "_Printer") -> None:
    signal = replace(TASKS, ring="newest") if buffer == "overwrite" else TASKS
    words = {np.uint32(word).tobytes(): np.uint64(bits).tobytes() for word, bits in ports.words().items()}
    for batch, clock in tail.batches(
        signal, options, attached=lambda _: printer.begin(), entries={"tcprt_ports": words}
    ):
        printer.passed(clock.to_unix(clock.now().boot_ns))
        for row, record in zip(batch, decoded(batch, clock.offset_ns), strict=True):
            printer.print(record, row)


def _replayed(records: Iterable[Record], printer: "_Printer") -> None:
    """Print a replay; its time is that of the operations, and what is left for the averages comes at the end."""
    printer.begin()
    for record in records:
        printer.passed(record.start_ns)
        printer.print(record)
    printer.end()


class _Printer:
    """Where records and averages go. `averages`: makes them from a start, Unix time; None without --stats."""

    def __init__(
        self,
        output: str,
        averages: Callable[[int], Averages] | None,
        records: Callable[[str], object],
        statistics: Callable[[str], object],
    ) -> None:
        self._output = output
        self._make_averages = averages
        self._averages: Averages | None = None
        self._records = records
        self._statistics = statistics

    def begin(self) -> None:
        """Print the header."""
        if self._output == "table":
            self._records(tcprt_rows.HEADER + "\n")

    def print(self, record: Record, row: np.void | None = None) -> None:
        """Print a record, of the kernel if it comes with its row."""
        self._records(_text(record, self._output, row))
        if self._averages:
            self._averages.add(record)

    def passed(self, unix_ns: int) -> None:
        """It is `unix_ns` now: print the averages that are due. The first time is the start."""
        if self._make_averages and self._averages is None:
            self._averages = self._make_averages(unix_ns)
        self._write(self._averages.due(unix_ns) if self._averages else ())

    def end(self) -> None:
        """Print the averages of the interval that has not ended."""
        self._write(self._averages.rest() if self._averages else ())

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._statistics(line)


def _to_stdout(text: str) -> None:
    click.echo(text, nl=False)


def _to_files(folder: Path, files: ExitStack) -> Iterator[Callable[[str], object]]:
    for name in (LOG, STATISTICS):
        yield files.enter_context(appending(folder / name)).write


def _text(record: Record, output: str, row: np.void | None = None) -> str:
    if output == "v6":
        return v6.line(record)
    if output == "table":
        return tcprt_rows.row(record) + "\n"
    own = tcprt_rows.fields(record)
    found = tcprt_rows.flow(record) | own if row is None else tail.as_object(row, record.unix_ns, own)
    return msgspec.json.encode(found).decode() + "\n"
