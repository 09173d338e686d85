"""The commands that need neither agent nor operator: validate, report, slow, version. Called by cli.py."""

import platform
import time
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from rich.console import Console

from latencyprobe import manifest, parsing
from latencyprobe.errors import SpecError
from latencyprobe.report import build, csv, kubectl, links, markdown, table, words
from latencyprobe.report.model import LatencyReport
from latencyprobe.slo.evaluate import State
from latencyprobe.store import SqliteStore, default_path

_PIPE_WIDTH = 120  # what the renderings are made for; a pipe has no width of its own
_FORMS = ["table", "json", "yaml", "html", "markdown", "csv"]
_LINKING = ["html", "markdown"]
_Command = TypeVar("_Command", bound=Callable[..., object])


@click.command(
    epilog="""\b
Examples:
  latencyprobe validate examples/redis.yaml
  latencyprobe validate deploy/*.yaml
"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> int:
    """Check LatencyProbe files; the API server says the same."""
    refused = 0
    for file in files:
        try:
            documents = manifest.documents(file)
        except SpecError as error:
            refused += _refuse([error])
            continue
        for place, document in documents:
            if problems := parsing.problems(document, source=f"{file}{place}"):
                refused += _refuse(problems)
            else:
                probe = parsing.parse(document)
                counts = f"targets {len(probe.spec.targets)}, objectives {len(probe.spec.objectives)}"
                click.echo(f"{file}{place}: LatencyProbe {probe.namespace}/{probe.name} is valid: {counts}")
    return 1 if refused else 0


def _refuse(problems: list[SpecError]) -> int:
    for problem in problems:
        click.echo(f"latencyprobe: {problem}", err=True)
    return len(problems)


def _trace_url(_: click.Context, __: click.Parameter, address: str) -> str:
    if address and (problem := links.problem(address)):
        raise click.BadParameter(problem)
    return address


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
  latencyprobe report -n shop -o html --trace-url 'http://jaeger:16686/trace/{traceId}' > shop.html
  latencyprobe report -n shop -o markdown      for an issue; -o csv for a spreadsheet
  latencyprobe report --fail-on violated       in a pipeline: exits 1
"""
)
@_sources
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
    *, namespace: str | None, all_namespaces: bool, store: Path | None, output: str, trace_url: str, fail_on: str | None
) -> int:
    """Print the SLO report: state, budget, and which stage burned it."""
    if trace_url and output not in _LINKING:
        raise click.UsageError(f"--trace-url goes with -o {' or '.join(_LINKING)}", click.get_current_context())
    reports = _reports(namespace, all_namespaces, store)
    if output == "table":
        _print_tables(reports, titled=namespace is not None or all_namespaces or len(reports) > 1)
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
  latencyprobe slow -o json | jq -r .traceId
"""
)
@_sources
@click.option("--target", help="Only this target's.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def slow(namespace: str | None, all_namespaces: bool, store: Path | None, target: str | None, output: str) -> None:
    """Print the slowest RPCs, their stages, what explains them, whom they waited for, and the trace ids of both."""
    results = [result for found in _reports(namespace, all_namespaces, store) for result in found.results]
    if target is not None and target not in (targets := {result.target for result in results}):
        raise click.BadParameter(
            f"{target!r} is no target: one of {', '.join(sorted(targets)) or 'none'}", param_hint="--target"
        )
    found = words.slowest(result for result in results if target in (None, result.target))
    if output == "json":
        for result, exchange in found:
            about = {"probe": result.probe, "target": result.target, "perspective": result.perspective}
            click.echo(msgspec.json.encode(about | msgspec.to_builtins(exchange)).decode())
    elif found:
        table.render_slowest(found, _console())
    else:
        click.echo("No RPC was recorded yet: send traffic to a target while LatencyProbe measures.")


def _reports(namespace: str | None, all_namespaces: bool, store: Path | None) -> tuple[LatencyReport, ...]:
    chosen = [name for name, given in (("-n", namespace), ("-A", all_namespaces), ("--store", store)) if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other", click.get_current_context())
    if namespace or all_namespaces:
        return kubectl.reports(namespace)
    with SqliteStore(store or default_path(), readonly=True) as opened:
        objectives = opened.objectives()
        now = int(time.time())
        return tuple(
            build.document(name, build.build(opened, [o for o in objectives if o.key.namespace == name], now))
            for name in sorted({objective.key.namespace for objective in objectives})
        )


def _print_tables(reports: tuple[LatencyReport, ...], *, titled: bool) -> None:
    console = _console()
    for i, found in enumerate(reports):
        if i:
            console.print()
        table.render(found, console, found.metadata.namespace if titled else "")
    if not reports:
        console.print(words.NO_REPORT)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


@click.command()
def version() -> None:
    """Print the versions of LatencyProbe and Python."""
    click.echo(f"latencyprobe {installed_version('latencyprobe')} (Python {platform.python_version()})")
