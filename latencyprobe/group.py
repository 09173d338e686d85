"""The command group: finds the commands of the installed packages, turns exceptions into messages and exit codes.

Commands come from the entry points `latencyprobe.commands`; each module is imported when its command
is used, so `validate` needs nothing that only the agent or the operator needs. A command may return its exit code.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from latencyprobe import output
from latencyprobe.errors import LatencyProbeError

_EPILOG = """\b
Examples:
  latencyprobe run --port 6379                measure on this host until Ctrl-C, then report
  latencyprobe init deployment/web -n shop    a LatencyProbe to begin with, for kubectl apply
  latencyprobe report -n shop                 the SLO report of a namespace
  latencyprobe slow                           the slowest RPCs and where their time went
\b
Shell completion:
  eval "$(_LATENCYPROBE_COMPLETE=bash_source latencyprobe)"     also zsh_source, fish_source
"""
_EXTRAS = ("operator",)  # parts of which a plain install has not all that they import


class Commands(click.Group):
    """A group whose commands are the entry points of the installed packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names without importing anything."""
        return sorted(_entry_points())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; one whose extra is not installed says so when it is called."""
        entry_point = _entry_points().get(cmd_name)
        if entry_point is None:
            return None
        try:
            command: click.Command = entry_point.load()
        except ModuleNotFoundError as error:
            return _unavailable(entry_point, str(error.name))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, which may import late what is not installed."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            entry_point = _entry_points().get(str(ctx.invoked_subcommand))
            if entry_point is None or str(error.name).startswith("latencyprobe"):
                raise
            raise LatencyProbeError(_lacking(entry_point, str(error.name))) from error


def run(args: Sequence[str] | None = None, called: str = "latencyprobe") -> int:
    """Run the command line; return 0, what the command returns, 1 failure, 2 usage. `called`: what a person typed."""
    try:
        return group.main(args, prog_name=called, standalone_mode=False) or 0
    except click.ClickException as error:
        where = f": see {ctx.command_path} --help" if (ctx := getattr(error, "ctx", None)) else ""
        _complain(error.format_message().rstrip(".") + where)
        return error.exit_code
    except LatencyProbeError as error:
        _complain(str(error))
        return 1


def _complain(message: str) -> None:
    try:
        click.echo(f"latencyprobe: {message}", err=True)
    except OSError:  # nobody can hear it
        output.drop(sys.stderr)


def _entry_points() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group="latencyprobe.commands")}


def _unavailable(entry_point: EntryPoint, module: str) -> click.Command:
    def fail(**_: Any) -> None:
        raise LatencyProbeError(_lacking(entry_point, module))

    everything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return click.Command(entry_point.name, everything, fail, help=f"(not installed: {_remedy(entry_point)})")


def _lacking(entry_point: EntryPoint, module: str) -> str:
    return f"the command {entry_point.name!r} needs {module}, which is not installed: {_remedy(entry_point)}"


def _remedy(entry_point: EntryPoint) -> str:
    part = entry_point.module.partition(".")[0].removeprefix("latencyprobe_")
    return f"pip install 'latencyprobe[{part}]'" if part in _EXTRAS else "pip install latencyprobe"


def _help(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


group = Commands(
    "latencyprobe",
    callback=click.pass_context(_help),
    invoke_without_command=True,
    help="Where did my RPC's time go? Per-RPC latency from the kernel on both hosts.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)

click.version_option(package_name="latencyprobe", message="%(prog)s %(version)s")(group)
