"""The commands for files of LatencyProbes, and `version`: validate, rules."""

import platform
from importlib.metadata import version as installed_version
from pathlib import Path

import click
from msgspec.structs import replace

from latencyprobe import manifest, options, parsing
from latencyprobe.errors import SpecError
from latencyprobe.rules import forms
from latencyprobe.slo.windows import WINDOW_S


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


@click.command()
def version() -> None:
    """Print the versions of LatencyProbe and Python."""
    click.echo(f"latencyprobe {installed_version('latencyprobe')} (Python {platform.python_version()})")
