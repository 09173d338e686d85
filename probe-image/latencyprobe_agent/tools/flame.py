"""`latencyprobe flame`: where slow system calls spent their time, as a flame graph."""

import sys
from collections import Counter
from pathlib import Path

import click

from latencyprobe.errors import OutputError
from latencyprobe.report import units
from latencyprobe_agent.flame import html, svg
from latencyprobe_agent.flame.folding import Folded, lines
from latencyprobe_agent.flame.reading import read
from latencyprobe_agent.flame.telling import EMPTY, Told, told
from latencyprobe_agent.flame.tree import tree

FORMS = ("folded", "svg", "html", "pprof")


@click.command(
    epilog="""\b
Examples:
  latencyprobe syscalls --pid 1234 --stacks user -o json --duration 1m > calls.json
  latencyprobe flame --from calls.json -o html --output-file flame.html
  latencyprobe flame --from calls.json -o pprof --output-file flame.pb.gz && go tool pprof -http : flame.pb.gz
\b
The width of a frame is time: a call weighs its duration, the stacks that were seen of it share that. [oncpu]: after the
last of them it ran. Input is what `latencyprobe syscalls -o json` prints, or folded text; `-` reads standard input.
"""
)
@click.option(
    "--from",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Recorded calls, or folded text.",
)
@click.option("-o", "--output", type=click.Choice(FORMS), default="folded", show_default=True)
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Instead of standard output.",
)
def flame(*, file: Path, output: str, output_file: Path | None) -> None:
    """Show where slow system calls spent their time, as a flame graph."""
    if output == "pprof" and output_file is None and sys.stdout.isatty():
        raise click.UsageError("a terminal cannot show pprof: give --output-file FILE, or send it into a pipe")
    folded, missing = _read(file)
    write(folded, told(sum(folded.values()), "" if file == Path("-") else file.name, missing), output, output_file)


def _read(file: Path) -> tuple[Folded, Counter[str]]:
    with click.open_file(str(file), errors="replace") as text:
        return read(text)


def write(folded: Folded, words: Told, form: str, file: Path | None) -> None:
    """Write the graph to a file or standard output, and on standard error what it is of. Raises OutputError."""
    graph = _drawn(folded, words, form)
    if file is None:
        click.echo(graph, nl=False)
    else:
        try:
            file.write_bytes(graph)
        except OSError as error:
            raise OutputError(f"{file}: {error.strerror}") from error
    of = f"{words.title}, {units.number(len(folded), 'stack')}" if folded else EMPTY
    click.echo(of + (f"; missing: {words.missing}" if words.missing else ""), err=True)


def _drawn(folded: Folded, words: Told, form: str) -> bytes:
    if form == "pprof":
        from latencyprobe_agent.flame import pprof  # noqa: PLC0415 - the other forms need no protobuf

        return pprof.encode(folded, words.title)
    if form == "folded":
        return "".join(f"{line}\n" for line in lines(folded)).encode()
    if form == "html":
        return html.render(tree(folded), words).encode()
    return svg.render(tree(folded), words).encode()
