"""The commands that need neither agent nor operator. Called by cli.py."""

import math
import platform
import time
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import NamedTuple, TypeVar

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console

from latencyprobe import manifest, options, parsing
from latencyprobe.errors import ReportError, SpecError
from latencyprobe.options import Duration
from latencyprobe.report import build, exchanges, explain, kubectl, table, units
from latencyprobe.report.model import LatencyReport, of_target, updated_unix_ns
from latencyprobe.rules import forms
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.windows import WINDOW_S
from latencyprobe.store import SqliteStore, default_path

_PIPE_WIDTH = 120  # what the renderings are made for; a pipe has no width of its own
_Command = TypeVar("_Command", bound=Callable[..., object])


@click.command(
    epilog="""\b
Examples:
  latencyprobe validate examples/redis.yaml
  latencyprobe validate deploy/*.yaml
  helm template shop | latencyprobe validate -
"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> int:
    """Check LatencyProbe files; the API server says the same."""
    refused = 0
    for file in files:
        called = manifest.called(file)
        try:
            documents = manifest.documents(file)
        except SpecError as error:
            refused += _refuse([error])
            continue
        for place, document in documents:
            if problems := parsing.problems(document, source=f"{called}{place}"):
                refused += _refuse(problems)
            else:
                probe = parsing.parse(document)
                counts = f"targets {len(probe.spec.targets)}, objectives {len(probe.spec.objectives)}"
                click.echo(f"{called}{place}: LatencyProbe {probe.namespace}/{probe.name} is valid: {counts}")
    return 1 if refused else 0


def _refuse(problems: list[SpecError]) -> int:
    for problem in problems:
        click.echo(f"latencyprobe: {problem}", err=True)
    return len(problems)


@click.command(
    epilog="""\b
Examples:
  latencyprobe rules -f shop.yaml | kubectl apply -f -        for the Prometheus Operator
  latencyprobe rules -f shop.yaml -o prometheus >rules.yaml   for rule_files of a Prometheus
  helm template shop | latencyprobe rules -f - -o pyrra       for another tool that makes rules
  latencyprobe rules -f shop.yaml -o sloth --window 28d       for one that has one window for all
"""
)
@options.FILE
@click.option("-o", "--output", type=click.Choice(list(forms.FORMS)), default="prometheusrule", show_default=True)
@click.option("--window", type=click.Choice(list(WINDOW_S)), help="Only objectives of this window.")
def rules(file: Path, output: str, window: str | None) -> None:
    """Write objectives as Prometheus rules, or as documents for Pyrra, Sloth or OpenSLO."""
    judged = []
    for probe in parsing.load_file(file):
        kept = tuple(objective for objective in probe.spec.objectives if window in (None, objective.window))
        if kept:
            judged.append(replace(probe, spec=replace(probe.spec, objectives=kept)))
        else:
            of_window = f" of window {window}" if window else ""
            click.echo(f"latencyprobe: {probe.namespace}/{probe.name} has no objectives{of_window}: no rules", err=True)
    if not judged:
        raise SpecError("spec.objectives", "none to make rules of: add one", manifest.called(file))
    click.echo(forms.text(output, judged), nl=False)


_SINCE = click.option("--since", type=Duration(), help="Figures of the last 5m, say, in whole minutes.")


class _Source(NamedTuple):
    """Where reports come from: at most one of these."""

    namespace: str | None
    all_namespaces: bool
    store: Path | None

    @property
    def of_cluster(self) -> bool:
        """Return whether they come through kubectl."""
        return self.namespace is not None or self.all_namespaces


def _sources(command: _Command) -> _Command:
    """Add the options that say where reports come from."""
    for option in (
        click.option("--store", type=click.Path(path_type=Path), help="A local store; default: this user's own."),
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
  latencyprobe report --fail-on violated       in a pipeline: exits 1
"""
)
@_sources
@_SINCE
@click.option("--target", help="Only this target's.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option(
    "--fail-on", type=click.Choice([State.VIOLATED.column]), help="Exit 1 when an objective is in this state."
)
def report(
    *,
    namespace: str | None,
    all_namespaces: bool,
    store: Path | None,
    since: float | None,
    target: str | None,
    output: str,
    fail_on: str | None,
) -> int:
    """Print the SLO report: state, budget, and which stage burned it."""
    source = _Source(namespace, all_namespaces, store)
    if since and source.of_cluster:
        raise click.UsageError(
            "--since needs a store; reports of a cluster are of whole windows: try `latencyprobe slow -n NAMESPACE`",
            click.get_current_context(),
        )
    reports = _of_target(_reports(source, since), target)
    if output == "table":
        _print_tables(reports, titled=source.of_cluster or len(reports) > 1, since=since)
    else:
        listed = {"apiVersion": "v1", "kind": "List", "items": reports}
        encode = msgspec.json.encode if output == "json" else msgspec.yaml.encode
        click.echo(encode(reports[0] if len(reports) == 1 else listed).decode().rstrip("\n"))
    return 1 if fail_on and any(found.summary[fail_on] for found in reports) else 0


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
    store: Path | None,
    since: float | None,
    target: str | None,
    limit: int | None,
    output: str,
) -> None:
    """Print the slowest RPCs, their stages, what explains them, whom they waited for, and the trace ids of both."""
    reports = _of_target(_reports(_Source(namespace, all_namespaces, store), since), target)
    found = exchanges.slowest(result for one in reports for result in one.results)
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
def explain_(namespace: str | None, all_namespaces: bool, store: Path | None, trace: str) -> None:
    """Show one slow RPC: its stages on one axis, what explains them, and what shows more."""
    results = [result for one in _reports(_Source(namespace, all_namespaces, store)) for result in one.results]
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
    chosen = [name for name, given in zip(("-n", "-A", "--store"), source, strict=True) if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other", click.get_current_context())
    if source.of_cluster:
        return kubectl.reports(source.namespace)
    back_s = None if since_s is None else math.ceil(since_s)
    with SqliteStore(source.store or default_path(), readonly=True) as opened:
        objectives = opened.objectives()
        now = int(time.time())
        return tuple(
            build.document(
                name,
                build.build(opened, [o for o in objectives if o.key.namespace == name], now, since_s=back_s),
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
        console.print("No report yet: `kubectl apply` a LatencyProbe, or measure with `latencyprobe run --port PORT`.")


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


@click.command()
def version() -> None:
    """Print the versions of LatencyProbe and Python."""
    click.echo(f"latencyprobe {installed_version('latencyprobe')} (Python {platform.python_version()})")
