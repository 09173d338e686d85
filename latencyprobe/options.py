"""Options that commands of several packages share: a LatencyProbe file, a form of output, a duration."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import click

PLUGIN = "kubectl latencyprobe"  # as which kubectl runs us: then reports are the cluster's
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_D = 36_500  # in ns it is a number of 64 bits, and a system call waits for as long
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_DATE = re.compile(r"\d{4}-?(?:\d{4}|W\d\d(?:-?\d)?|\d\d-\d\d)")

FILE = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="LatencyProbe file (YAML); - is standard input.",
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


class Moment(click.ParamType[int]):
    """A moment that is over, ISO 8601, in Unix s: an instant, in UTC unless it says otherwise, or a date: its end."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return Unix seconds; of today, now."""
        text, now = str(value), int(time.time())
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no date such as 2026-11-01 and no instant such as 2026-11-01T14:30Z", param, ctx)
        began = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        if began < 0:
            self.fail(f"{text} is before 1970", param, ctx)
        if began > now:
            self.fail(f"{text} is still to come", param, ctx)
        return min(began + 86_400, now) if _DATE.fullmatch(text) else began


class Duration(click.ParamType[float]):
    """A time such as 90s, 5m or 1h30m, in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        parts = re.findall(_PART, str(value)) if re.match(rf"(?:{_PART})+\Z", str(value)) else []
        seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
        if seconds == 0:
            self.fail(f"{value!r} is no duration such as 30s, 5m or 1h30m", param, ctx)
        if seconds > _LONGEST_D * _UNIT_S["d"]:
            self.fail(f"{value!r} is longer than {_LONGEST_D}d", param, ctx)
        return seconds


DURATION = click.option("--duration", type=Duration(), help="End by itself after this time, such as 1m.")
