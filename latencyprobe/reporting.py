"""The commands that show what was measured: report, slow, explain. Called by cli.py."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import click
import msgspec
from rich.console import Console

from latencyprobe import parsing
from latencyprobe.errors import ReportError
from latencyprobe.options import PLUGIN, Duration
from latencyprobe.report import build, csv, exchanges, explain, kubectl, links, markdown, table, units, words
from latencyprobe.report.model import LatencyReport, of_target, updated_unix_ns
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.objective import objectives as of_probe
from latencyprobe.store import Counts, SqliteStore, default_path

_PIPE_WIDTH = 120  # what the renderings are made for; a pipe has no width of its own
_FORMS = ["table", "json", "yaml", "html", "markdown", "csv"]
_LINKING = ["html", "markdown"]
_Command = TypeVar("_Command", bound=Callable[..., object])


_SINCE = click.option("--since", type=Duration(), help="Figures of the last 5m, say, in whole minutes.")


class _Source(NamedTuple):
    """Where reports come from: at most one of these. `namespace` "": that of kubectl's context."""

    namespace: str | None
    all_namespaces: bool
    store: str | None
    file: Path | None = None

    @classmethod
    def of(cls, namespace: str | None, all_namespaces: bool, store: str | None, file: Path | None = None) -> "_Source":
        """Return what was asked for; by default this host's store, of the plugin the context's namespace."""
        chosen = [name for name, given in (("-n", namespace), ("-A", all_namespaces), ("--store", store)) if given]
        context = click.get_current_context()
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} exclude each other", context)
        if not chosen and context.find_root().info_name == PLUGIN:
            namespace = ""
        source = cls(namespace, all_namespaces, store, file)
        if source.is_shared and not file:
            problem = "a shared store has counts alone: `report` asks for it with -f FILE, whose objectives are judged"
            raise click.UsageError(problem, context)
        if file and not source.is_shared:
            raise click.UsageError("-f goes with --store http://HOST:9090", context)
        return source

    @property
    def is_shared(self) -> bool:
        """Return whether they are of a server with the agents' metrics."""
        return (self.store or "").startswith(("http://", "https://"))

    @property
    def of_cluster(self) -> bool:
        """Return whether they come through kubectl."""
        return self.namespace is not None or self.all_namespaces


def _trace_url(_: click.Context, __: click.Parameter, address: str) -> str:
    if address and (problem := links.problem(address)):
        raise click.BadParameter(problem)
    return address


def _sources(command: _Command) -> _Command:
    """Add the options that say where reports come from."""
    for option in (
        click.option(
            "--store", help="A local store; default: this user's own. Of `report` also http://PROMETHEUS:9090."
        ),
        click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces of the cluster, through kubectl."),
        click.option("-n", "--namespace", help="A namespace of the cluster, through kubectl."),
    ):
        command = option(command)
    return command


@click.command(
    epilog="""\b
Examples:
  latencyprobe report                          what was measured on this host
  latencyprobe report -n shop                  a namespace of the cluster
  latencyprobe report -A -o json | jq .
  latencyprobe report --since 5m               the last minutes
  latencyprobe report -n shop -o html --trace-url 'http://jaeger:16686/trace/{traceId}' > shop.html
  latencyprobe report -n shop -o markdown      for an issue; -o csv for a spreadsheet
  latencyprobe report --fail-on violated       in a pipeline: exits 1
  latencyprobe report --store http://prometheus:9090 -f shop.yaml
                                               by what a Prometheus has of these objectives
"""
)
@_sources
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --store http://...: LatencyProbes whose objectives are judged.",
)
@_SINCE
@click.option("--target", help="Only this target's.")
@click.option("-o", "--output", type=click.Choice(_FORMS), default="table", show_default=True)
@click.option(
    "--trace-url",
    metavar="ADDRESS",
    callback=_trace_url,
    default="",
    help="With html and markdown: the page of a trace, {traceId} for its id.",
)
@click.option(
    "--fail-on", type=click.Choice([State.VIOLATED.column]), help="Exit 1 when an objective is in this state."
)
def report(
    *,
    namespace: str | None,
    all_namespaces: bool,
    store: str | None,
    file: Path | None,
    since: float | None,
    target: str | None,
    output: str,
    trace_url: str,
    fail_on: str | None,
) -> int:
    """Print the SLO report: state, budget, and which stage burned it."""
    if trace_url and output not in _LINKING:
        raise click.UsageError(f"--trace-url goes with -o {' or '.join(_LINKING)}", click.get_current_context())
    source = _Source.of(namespace, all_namespaces, store, file)
    if since and source.of_cluster:
        raise click.UsageError(
            "--since needs a store; reports of a cluster are of whole windows: try `latencyprobe slow -n NAMESPACE`",
            click.get_current_context(),
        )
    reports = _of_target(_reports(source, since), target)
    if output == "table":
        _print_tables(reports, titled=source.of_cluster or len(reports) > 1, since=since)
    else:
        click.echo(_written(reports, output, trace_url), nl=False)
    return 1 if fail_on and any(found.summary[fail_on] for found in reports) else 0


def _written(reports: tuple[LatencyReport, ...], output: str, trace_url: str) -> str:
    if output == "html":
        from latencyprobe.report import html  # noqa: PLC0415 - jinja2 takes 40 ms that no other form needs

        return html.render(reports, trace_url)
    if output == "markdown":
        return f"{markdown.render(reports, trace_url)}\n"
    if output == "csv":
        for one in reports:
            if one.omitted:
                click.echo(f"latencyprobe: {one.metadata.namespace}: {words.omitted(one)}", err=True)
        return csv.render(reports)
    listed = {"apiVersion": "v1", "kind": "List", "items": reports}
    encode = msgspec.json.encode if output == "json" else msgspec.yaml.encode
    return encode(reports[0] if len(reports) == 1 else listed).decode().rstrip("\n") + "\n"


@click.command(
    epilog="""\b
Examples:
  latencyprobe slow                            on this host
  latencyprobe slow -n shop --target cart
  latencyprobe slow --since 5m --limit 3
  latencyprobe slow -o json | jq -r .traceId
"""
)
@_sources
@_SINCE
@click.option("--target", help="Only this target's.")
@click.option("--limit", type=click.IntRange(1), help="Print so many at most.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def slow(
    *,
    namespace: str | None,
    all_namespaces: bool,
    store: str | None,
    since: float | None,
    target: str | None,
    limit: int | None,
    output: str,
) -> None:
    """Print the slowest RPCs, their stages, what explains them, whom they waited for, and the trace ids of both."""
    reports = _of_target(_reports(_Source.of(namespace, all_namespaces, store), since), target)
    found = words.slowest(result for one in reports for result in one.results)
    from_ns = time.time_ns() - round(since * 1e9) if since else 0
    found = [item for item in found if units.unix_ns(item[1].time) >= from_ns][:limit]
    if output == "json":
        for result, exchange in found:
            about = {"probe": result.probe, "target": result.target, "perspective": result.perspective}
            click.echo(msgspec.json.encode(about | msgspec.to_builtins(exchange)).decode())
    elif found:
        exchanges.render(found, _console())
    elif since:
        back = units.time_span(round(since))
        click.echo(
            f"None of the slowest RPCs of each hour began within the last {back}: `latencyprobe report` has all."
        )
    else:
        click.echo("No RPC was recorded yet: send traffic to a target while LatencyProbe measures.")


@click.command(
    name="explain",
    epilog="""\b
Examples:
  latencyprobe explain                         the slowest RPC of this host
  latencyprobe explain 4bf92f35                by the beginning of its trace id, as `slow` prints it
  latencyprobe explain -n shop 4bf92f35
""",
)
@_sources
@click.argument("trace", required=False, default="")
def explain_(namespace: str | None, all_namespaces: bool, store: str | None, trace: str) -> None:
    """Show one slow RPC: its stages on one axis, what explains them, and what shows more."""
    results = [result for one in _reports(_Source.of(namespace, all_namespaces, store)) for result in one.results]
    found = explain.find(results, trace.lower())
    traces = dict.fromkeys(slow.trace_id for _, slow in found)
    if not found:
        what = (
            f"no RPC whose trace id begins with {trace!r} is among the slowest" if trace else "no RPC was recorded yet"
        )
        raise ReportError(f"{what}: `latencyprobe slow` lists those that can be explained")
    if trace and len(traces) > 1:
        raise ReportError(f"{trace!r} begins {len(traces)} trace ids: give more of one: {', '.join(list(traces)[:5])}")
    chosen = next(iter(traces))
    explain.render([item for item in found if item[1].trace_id == chosen], _console())


def _reports(source: _Source, since_s: float | None = None) -> tuple[LatencyReport, ...]:
    if source.of_cluster:
        return kubectl.reports(source.namespace)
    back_s = None if since_s is None else math.ceil(since_s)
    if source.is_shared:
        from latencyprobe.shared_store import shared_counts  # noqa: PLC0415 - HTTP, which no other report needs

        assert source.store is not None
        assert source.file is not None
        objectives = [objective for probe in parsing.load_file(source.file) for objective in of_probe(probe)]
        return _built(shared_counts(source.store), objectives, back_s)
    with SqliteStore(source.store or default_path(), readonly=True) as opened:
        return _built(opened, opened.objectives(), back_s)


def _built(counts: Counts, objectives: Sequence[Objective], back_s: int | None) -> tuple[LatencyReport, ...]:
    """Return the report of each namespace."""
    now = int(time.time())
    return tuple(
        build.document(
            name,
            build.build(counts, [o for o in objectives if o.key.namespace == name], now, since_s=back_s),
        )
        for name in sorted({objective.key.namespace for objective in objectives})
    )


def _of_target(reports: tuple[LatencyReport, ...], target: str | None) -> tuple[LatencyReport, ...]:
    """Return the reports with the results of one target alone."""
    if target is None:
        return reports
    targets = {result.target for one in reports for result in one.results}
    if target not in targets:
        raise click.BadParameter(
            f"{target!r} is no target: one of {', '.join(sorted(targets)) or 'none'}", param_hint="--target"
        )
    return tuple(of_one for one in reports if (of_one := of_target(one, target)).results)


def _print_tables(reports: tuple[LatencyReport, ...], *, titled: bool, since: float | None) -> None:
    console, back = _console(), units.time_span(math.ceil(since)) if since else ""
    for i, found in enumerate(reports):
        if i:
            console.print()
        age_s = (time.time_ns() - updated_unix_ns(found)) // 10**9
        table.render(found, console, found.metadata.namespace if titled else "", back, age_s)
    if not reports:
        console.print(words.NO_REPORT)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
