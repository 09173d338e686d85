"""The command that shows what was measured: report."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
from rich.console import Console

from latencyprobe import sources, watching
from latencyprobe.options import Duration, Moment
from latencyprobe.output import figures_console, utf_8
from latencyprobe.report import choosing, csv, headline, markdown, table, units, words
from latencyprobe.report.choosing import Sort
from latencyprobe.report.model import LatencyReport
from latencyprobe.slo.evaluate import State
from latencyprobe.sources import Found, Source

_FORMS = ["table", "json", "yaml", "html", "markdown", "csv"]
_LINKING = ("html", "markdown")
_WATCHED = {"table": "\n", "json": "", "yaml": "---\n"}  # and what comes in between, in a pipe
_AT_MOST = click.IntRange(1)


@click.command(
    epilog="""\b
Examples:
  latencyprobe report                          what was measured on this host
  latencyprobe report -n shop                  a namespace of the cluster
  latencyprobe report -A -o json | jq .
  latencyprobe report --since 5m               the last minutes
  latencyprobe report --at 2026-11-01          as it was at the end of that day, UTC; or 2026-11-01T14:30Z
  latencyprobe report --watch --sort burn      again and again, until Ctrl-C
  latencyprobe report -n shop -o html --trace-url 'http://jaeger:16686/trace/{traceId}' > shop.html
  latencyprobe report -n shop -o markdown      for an issue; -o csv for a spreadsheet
  latencyprobe report --fail-on violated       in a pipeline: exits 1
  latencyprobe report --store http://prometheus:9090 -f shop.yaml
                                               by what a Prometheus has of these objectives
"""
)
@sources.options
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --store http://...: LatencyProbes whose objectives are judged.",
)
@sources.SINCE
@click.option("--at", type=Moment(), help="As it was then, from a store: a date (its end, UTC) or an instant.")
@sources.TARGET
@sources.PEER
@click.option(
    "--sort",
    type=click.Choice([one.value for one in Sort]),
    default=Sort.STATE.value,
    show_default=True,
    help="Worst first.",
)
@click.option("--limit", type=_AT_MOST, help="Show so many objectives of each namespace at most.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--interval", type=Duration(), default="5s", show_default=True, help="With --watch: how often.")
@click.option("-o", "--output", type=click.Choice(_FORMS), default="table", show_default=True)
@sources.trace_url(*_LINKING)
@click.option(
    "--fail-on",
    type=click.Choice([State.VIOLATED.column]),
    help="Exit 1 when an objective is in this state, when none is judged (no report, no data, incomplete), and when a "
    "report cannot be read.",
)
def report(
    *,
    namespace: str | None,
    all_namespaces: bool,
    store: str | None,
    file: Path | None,
    since: int | None,
    at: int | None,
    target: str | None,
    peer: str | None,
    sort: str,
    limit: int | None,
    watch: bool,
    interval: float,
    output: str,
    trace_url: str,
    fail_on: str | None,
) -> int:
    """Print the SLO report: state, budget, and which stage burned it."""
    source = Source.of(namespace, all_namespaces, store, file)
    for wrong, why in (
        (trace_url and output not in _LINKING, sources.without_links(*_LINKING)),
        (since and source.of_cluster, f"--since needs a store; {_OF_CLUSTER}: {_LAST_MINUTES}"),
        (at and source.of_cluster, f"--at needs a store; {_OF_CLUSTER}: the page of -o html has their burn-down"),
        (watch and at, "--watch and --at exclude each other: what is over does not change"),
        (watch and fail_on, "--watch and --fail-on exclude each other: the one never ends by itself"),
        (watch and output not in _WATCHED, f"--watch goes with -o {', '.join(_WATCHED)}"),
    ):
        if wrong:
            raise click.UsageError(why, click.get_current_context())

    def shown() -> Found:
        found = source.read(since, at)
        kept = sources.chosen(found.reports, target, peer)
        back = [_SINCE.format(units.time_span(since))] if since else []
        return found._replace(
            reports=tuple(choosing.first(choosing.sorted_by(one, Sort(sort)), limit) for one in kept),
            said=(*found.said, *back, *([_OF_PEERS.format(peer)] if peer else ())),
        )

    text = partial(_text, output=output, trace_url=trace_url, titled=source.of_cluster)
    if output != "table":
        utf_8()
    if watch:
        console = figures_console()
        watching.watch(lambda: text(shown(), console), console, interval, _WATCHED[output])
        return 0
    found = shown()
    click.echo(text(found, figures_console()), nl=False)
    return _failed(found.reports, fail_on) or int(found.unread > 0) if fail_on else 0


def _failed(reports: Sequence[LatencyReport], fail_on: str) -> int:
    """Return 1 where an objective is in this state, and where none is judged, which is said."""
    found = sum((Counter(one.summary) for one in reports), Counter[str]())
    unjudged = {state.words: found[state.column] for state in _UNJUDGED if found[state.column]}
    if found.total() > sum(unjudged.values()):
        return int(found[fail_on] > 0)
    all_of_it = ", ".join(f"{n} {state}" for state, n in unjudged.items()) or "there is none"
    why = f"no objective is judged: {all_of_it}" if reports else _NOTHING_TO_JUDGE
    click.echo(f"latencyprobe: --fail-on {fail_on}: {why}", err=True)
    return 1


_UNJUDGED = (State.INCOMPLETE, State.NO_DATA)
_NOTHING_TO_JUDGE = "there is no report to judge by: is that the right namespace, or store?"
_OF_CLUSTER = "reports of a cluster are of whole windows until now"
_LAST_MINUTES = "`latencyprobe top -n NAMESPACE` has the last five minutes"
_SINCE = "Figures of the last {}; state, budget and burn rates of each objective's window."
_OF_PEERS = "Of peers only those with {!r} in their name; state, SLI and budget are of all."


def _text(found: Found, console: Console, *, output: str, trace_url: str, titled: bool) -> str:
    """Return reports in one form; what has to be known of all goes to standard error beside those for programs."""
    if output == "table":
        with console.capture() as captured:
            for said in found.said:
                console.print(said, markup=False, highlight=False)
            _print_tables(console, found, titled=titled or len(found.reports) > 1)
        return captured.get()
    said_of_all = (*found.said, *_stale(found))
    if output == "html":
        from latencyprobe.report import html  # noqa: PLC0415 - jinja2 takes 40 ms that no other form needs

        return html.render(found.reports, trace_url, said_of_all, past=found.past)
    if output == "markdown":
        return f"{markdown.render(found.reports, trace_url, said_of_all)}\n"
    for said in said_of_all:
        click.echo(f"latencyprobe: {said}", err=True)
    return _for_programs(found.reports, output)


def _for_programs(reports: tuple[LatencyReport, ...], output: str) -> str:
    if output == "csv":
        for one in reports:
            if one.omitted:
                click.echo(f"latencyprobe: {one.metadata.namespace}: {headline.omitted(one)}", err=True)
        return csv.render(reports)
    listed = {"apiVersion": "v1", "kind": "List", "items": reports}
    encode = msgspec.json.encode if output == "json" else msgspec.yaml.encode
    return encode(reports[0] if len(reports) == 1 else listed).decode().rstrip("\n") + "\n"


def _print_tables(console: Console, found: Found, *, titled: bool) -> None:
    for i, one in enumerate(found.reports):
        if i:
            console.print()
        table.render(one, console, one.metadata.namespace if titled else "", found.age([one], int(time.time())))
    if not found.reports:
        console.print(words.NO_REPORT)


def _stale(found: Found) -> Iterable[str]:
    """Yield of each namespace how old its figures are, where that is a warning."""
    for one in found.reports:
        if (age := found.age([one], int(time.time()))).stale:
            yield f"{one.metadata.namespace}: {age.text}" if len(found.reports) > 1 else age.sentence
