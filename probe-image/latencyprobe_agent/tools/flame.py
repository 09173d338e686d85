"""`latencyprobe flame`: where slow system calls spent their time, as a flame graph; live or of recorded calls."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from latencyprobe.errors import OutputError
from latencyprobe.options import DURATION
from latencyprobe.report import units
from latencyprobe_agent.flame import html, svg
from latencyprobe_agent.flame.folding import OTHER, Folded, add, lines, weights
from latencyprobe_agent.flame.reading import NOT_UNDERSTOOD, read
from latencyprobe_agent.flame.telling import EMPTY, Told, told
from latencyprobe_agent.flame.tree import tree
from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.measure.calls_in_progress import Call
from latencyprobe_agent.symbols.symbolizer import Symbolizer, inside_calls
from latencyprobe_agent.tools.syscalls import idle
from latencyprobe_agent.tools.tracking import finished_calls
from latencyprobe_agent.tools.watching import WHOSE, Watching, asked, slower_than, wanted_stacks

FORMS = ("folded", "svg", "html", "pprof")
_LIVE = {
    "pid": "--pid",
    "cgroup": "--cgroup",
    "comm": "--comm",
    "everybody": "--all",
    "slower_than": "--slower-than",
    "duration": "--duration",
    "all_waits": "--all-waits",
}
_MOST_STACKS = 1 << 16  # different ones of a live graph: some 100 MB of names at the worst


def _live_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((*WHOSE, slower_than("20ms"), DURATION)):
        command = option(command)
    return command


@click.command(
    epilog="""\b
Examples:
  latencyprobe flame --comm postgres --duration 1m -o html --output-file flame.html
  latencyprobe flame --pid 1234 --slower-than 1ms -o pprof --output-file flame.pb.gz
  latencyprobe syscalls --all --stacks user -o json > calls.json
  latencyprobe flame --from calls.json -o svg > flame.svg
\b
The width of a frame is time: a call weighs its duration, the stacks that were seen of it share that. [oncpu]: after the
last of them it ran. User stacks need frame pointers. FILE is what `latencyprobe syscalls -o json` prints, or folded
text; `-` is standard input. Live, it slows down every system call of the host. Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Recorded calls, or folded text, instead of what happens now.",
)
@_live_options
@click.option("--all-waits", is_flag=True, help="The calls in which programs wait for work, too.")
@click.option("-o", "--output", type=click.Choice(FORMS), default="folded", show_default=True)
@click.option(
    "--output-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Instead of standard output."
)
def flame(*, file: Path | None, all_waits: bool, output: str, output_file: Path | None, **live: Any) -> None:
    """Show where slow system calls spent their time, as a flame graph."""
    if output == "pprof" and output_file is None and sys.stdout.isatty():
        raise click.UsageError("a terminal cannot show pprof: give --output-file FILE, or send it into a pipe")
    if file is not None:
        context = click.get_current_context()
        sources = {option: context.get_parameter_source(name) for name, option in _LIVE.items()}
        if given := [option for option, source in sources.items() if source is ParameterSource.COMMANDLINE]:
            raise click.UsageError(f"--from and {given[0]} exclude each other: a file has what was recorded")
        folded, missing = _read(file)
        of = "" if file == Path("-") else file.name
    else:
        duration_s = live.pop("duration")
        knobs = replace(asked(live), stacks=wanted_stacks("user"))
        knobs = replace(knobs, left_out=frozenset() if all_waits else idle())
        folded, missing = _watch(Watching(knobs, duration_s, output, stats=False))
        of = _whose(knobs)
    write(folded, told(sum(folded.values()), of, missing), output, output_file)


def _read(file: Path) -> tuple[Folded, Counter[str]]:
    with click.open_file(str(file), errors="replace") as text:
        folded, missing = read(text)
    if not folded and (strange := missing[NOT_UNDERSTOOD]):
        raise click.BadParameter(
            f"{file}: none of its {strange:,} lines is folded text or what `latencyprobe syscalls -o json` prints",
            param_hint="--from",
        )
    return folded, missing


def _watch(watching: Watching) -> tuple[Folded, Counter[str]]:
    """Return the stacks of all calls until the end, and what was lost."""
    missing: Counter[str] = Counter()
    with Symbolizer() as symbols:
        graph = Graph(symbols)
        for calls in finished_calls(watching, missing.update):
            for call in calls:
                graph.add(call)
    return graph.folded, missing + graph.missing


class Graph:
    """Calls as they come, named and folded. Bounded: calls of one stack too many are `[other]`, and counted."""

    def __init__(self, symbols: Symbolizer, most_stacks: int = _MOST_STACKS) -> None:
        self.folded: Folded = {}
        self.missing: Counter[str] = Counter()
        self._symbols = symbols
        self._most_stacks = most_stacks

    def add(self, call: Call) -> None:
        """Add a call with its stacks."""
        folded = self._of(call)
        if len(self.folded) >= self._most_stacks and not folded.keys() <= self.folded.keys():
            self.missing["calls of too many different stacks"] += 1
            add(self.folded, call.comm, [], [], rest_ns=call.duration_ns, rest=OTHER)
            return
        if not call.kernel and not call.user:
            self.missing["calls without a stack"] += 1
        for stack, ns in folded.items():
            self.folded[stack] = self.folded.get(stack, 0) + ns

    def _of(self, call: Call) -> Folded:
        folded: Folded = {}
        *each, rest_ns = weights(call.duration_ns, (elapsed_ns for elapsed_ns, _ in call.kernel))
        user = self._symbols.user(call.tgid, inside_calls(call.user), taken_ns=call.start_ns) if call.user else []
        kernel = [self._symbols.kernel(inside_calls(addresses)) for _, addresses in call.kernel]
        add(folded, call.comm, user, zip(each, kernel, strict=True), rest_ns=rest_ns)
        return folded


def _whose(knobs: Knobs) -> str:
    if knobs.comm:
        return knobs.comm
    return f"process {knobs.tgid}" if knobs.tgid else "a cgroup" if knobs.cgroup_id else "all tasks"


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
    click.echo(f"{words.title}, {units.number(len(folded), 'stack')}" if folded else EMPTY, err=True)
    if words.missing:
        click.echo(f"missing: {words.missing}", err=True)


def _drawn(folded: Folded, words: Told, form: str) -> bytes:
    if form == "pprof":
        from latencyprobe_agent.flame import pprof  # noqa: PLC0415 - the other forms need no protobuf

        return pprof.encode(folded, words.title)
    if form == "folded":
        return "".join(f"{line}\n" for line in lines(folded)).encode()
    if form == "html":
        return html.render(tree(folded), words).encode()
    return svg.render(tree(folded), words).encode()
