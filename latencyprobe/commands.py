"""The commands that need neither agent nor operator: validate, report, slow, version. Called by cli.py."""

import platform
from importlib.metadata import version as installed_version
from pathlib import Path

import click

from latencyprobe import manifest, spec
from latencyprobe.errors import SpecError


@click.command(
    epilog="""\b
Examples:
  latencyprobe validate examples/redis.yaml
  latencyprobe validate deploy/*.yaml
"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> int:
    """Check LatencyProbe files: the same verdict as the API server's, with every problem's field."""
    refused = 0
    for file in files:
        try:
            documents = manifest.documents(file)
        except SpecError as error:
            refused += _refuse([error])
            continue
        for place, document in documents:
            if problems := spec.problems(document, source=f"{file}{place}"):
                refused += _refuse(problems)
            else:
                probe = spec.parse(document)
                counts = f"{len(probe.spec.targets)} targets, {len(probe.spec.objectives)} objectives"
                click.echo(f"{file}{place}: LatencyProbe {probe.namespace}/{probe.name} is valid: {counts}")
    return 1 if refused else 0


def _refuse(problems: list[SpecError]) -> int:
    for problem in problems:
        click.echo(f"latencyprobe: {problem}", err=True)
    return len(problems)


@click.command()
def version() -> None:
    """Print the version of LatencyProbe and of the Python it runs on."""
    click.echo(f"latencyprobe {installed_version('latencyprobe')} (Python {platform.python_version()})")
