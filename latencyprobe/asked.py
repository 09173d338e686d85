"""What a person asks one host to measure: a file of LatencyProbes, or ports alone. For the commands that measure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from latencyprobe.spec import LatencyProbe

_Command = TypeVar("_Command", bound=Callable[..., object])


def file_or_ports(command: _Command) -> _Command:
    """Give a click command the options `file` and `ports`; exactly one must be given, says `probes`."""
    port = click.option(
        "--port",
        "ports",
        type=click.IntRange(1, 65535),
        multiple=True,
        metavar="PORT",
        help="Without a file: a port of this host's servers, or that its clients connect to; repeatable.",
    )
    told = "LatencyProbe file (YAML); - is standard input."
    return click.option("-f", "--file", type=click.Path(path_type=Path), metavar="FILE", help=told)(port(command))


def probes(
    file: Path | None,
    ports: Sequence[int],
    threshold: str | None = None,
    protocol: str | None = None,
    *,
    instead: str = "",
) -> "tuple[LatencyProbe, ...]":
    """Return the LatencyProbes of the file, or one of the ports, with this threshold and protocol. `instead`: what else
    a person may give to this command.

    Raises click.UsageError where neither or both are given, or a file and what goes with ports; else as `load_file`.
    """
    from latencyprobe import listening, parsing, starting  # noqa: PLC0415 - the agent of a node reads no files

    usage = click.get_current_context()
    if (file is None) == (not ports):
        raise click.UsageError(f"give -f FILE or --port PORT{instead}: what to measure; {listening.told()}", usage)
    if file is None:
        document = starting.of_ports(ports, threshold=threshold or starting.THRESHOLD, protocol=protocol)
        return (parsing.parse(document, source="--port"),)
    if threshold or protocol:
        raise click.UsageError("--threshold and --protocol go with --port: a file has its own", usage)
    return parsing.load_file(file)
