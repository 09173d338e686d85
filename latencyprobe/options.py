"""Options that commands of several packages share: a LatencyProbe file, a form of output, a duration."""

import re
from pathlib import Path

import click

FILE = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="LatencyProbe file (YAML); - is standard input.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


class Duration(click.ParamType[float]):
    """A time such as 90s, 5m or 1h, in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        match = re.match(r"(\d+(?:\.\d+)?)(ms|s|m|h)\Z", str(value))
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is no duration such as 30s, 5m or 1h", param, ctx)
        return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]]
