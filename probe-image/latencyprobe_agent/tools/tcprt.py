"""`latencyprobe tcprt`: request/response tasks at the TCP layer, live or from recorded operations.

tcp-evidence.md part B. Parses options, reads records, prints them.
"""

from collections.abc import Iterable

import click
import msgspec

from latencyprobe_agent.measure.tcprt import v6
from latencyprobe_agent.measure.tcprt.machine import Record
from latencyprobe_agent.measure.tcprt.replay import replay
from latencyprobe_agent.tools import tcprt_rows
from latencyprobe_agent.tools.options import Options, tool_options


@click.command(
    epilog="""\b
Examples:
  latencyprobe tcprt --replay operations.jsonl --format v6
"""
)
@click.option(
    "--replay",
    "recorded",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read recorded operations, JSON lines, in place of the kernel; - is stdin.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["native", "v6"]),
    default="native",
    show_default=True,
    help="v6: the lines of Alibaba's TCP-RT, byte for byte.",
)
@tool_options
def tcprt(*, recorded: str | None, form: str, options: Options) -> None:
    """Split every request and response into receiving, serving and sending until the last ACK."""
    if form == "v6" and options.output == "json":
        raise click.UsageError("-o json and --format v6 exclude each other", click.get_current_context())
    assert recorded
    with click.open_file(recorded, "rb") as lines:
        _print(replay(lines, "stdin" if recorded == "-" else recorded), "v6" if form == "v6" else options.output)


def _print(records: Iterable[Record], output: str) -> None:
    if output == "table":
        click.echo(tcprt_rows.HEADER)
    for record in records:
        click.echo(_text(record, output), nl=False)


def _text(record: Record, output: str) -> str:
    if output == "v6":
        return v6.line(record)
    if output == "table":
        return tcprt_rows.row(record) + "\n"
    return msgspec.json.encode(tcprt_rows.flow(record) | tcprt_rows.fields(record)).decode() + "\n"
