"""The options that every tool of a tracker has: whose tasks, how slow, for how long, in what form."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import click

from latencyprobe.options import DURATION, OUTPUT, Duration
from latencyprobe_agent.kernel.hooks import has_the_kernels_numbers
from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.tools.options import PROCESS, cgroup_option
from latencyprobe_agent.vocabulary.records import StackOptionFlags

_RECORDS_PER_SECOND = 10_000  # for what is printed, and to keep a flood of them cheap; the excess is counted
_STACKS_PER_SECOND = 10_000
_NEVER_NS = 2**64 - 1
STACKS = {  # by the choices of --stacks
    "none": StackOptionFlags(0),
    "kernel": StackOptionFlags.KERNEL,
    "user": StackOptionFlags.KERNEL | StackOptionFlags.USER,
}


@dataclass(frozen=True)
class Watching:
    """`duration_s` None: until Ctrl-C. `output`: table or json; `stats`: what there is at the end, in place of rows."""

    knobs: Knobs
    duration_s: float | None
    output: str
    stats: bool

    @property
    def tick_s(self) -> float:
        """How often to look for what has timed out: four times in the timeout."""
        return min(1.0, self.knobs.timeout_ns / 4e9) if self.knobs.timeout_ns else 1.0


def wanted_stacks(choice: str) -> StackOptionFlags:
    """Return what to take for a choice of STACKS. User stacks only where their processes can be found by number; where
    not, print that on stderr."""
    wanted = STACKS[choice]
    if StackOptionFlags.USER in wanted and not has_the_kernels_numbers():
        click.echo("no user stacks: in a PID namespace of its own they have no names: use hostPID", err=True)
        wanted &= ~StackOptionFlags.USER
    return wanted


def _comm(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is None:
        return ""
    if not 0 < len(value.encode()) <= 15:
        raise click.BadParameter(
            f"{value!r}: a thread's name has 1 to 15 bytes, as `ps -L -o comm` shows it", ctx, param
        )
    return value


WHOSE = (
    click.option("--pid", type=PROCESS, metavar="PID", help="Only threads of this process."),
    cgroup_option("Only tasks of this cgroup, such as /sys/fs/cgroup/system.slice, and of those below it."),
    click.option("--comm", callback=_comm, metavar="NAME", help="Only threads of this name."),
    click.option("--all", "everybody", is_flag=True, help="All tasks of this host."),
)


def slower_than(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option for a threshold."""
    told = "Only what takes longer."
    return click.option("--slower-than", type=Duration(), default=default, show_default=True, help=told)


def asked(given: dict[str, Any]) -> Knobs:
    """Take the values of WHOSE and of `slower_than` out of a command's. Raises click.UsageError."""
    tgid, cgroup, comm = given.pop("pid") or 0, given.pop("cgroup"), given.pop("comm")
    if given.pop("everybody"):
        if tgid or cgroup or comm:
            raise click.UsageError("--all and --pid, --cgroup or --comm exclude each other")
    elif not (tgid or cgroup or comm):
        raise click.UsageError("say whose: --pid, --cgroup, --comm, or --all for all tasks of this host")
    return Knobs(
        threshold_ns=round(given.pop("slower_than") * 1e9),
        tgid=tgid,
        cgroup_id=cgroup,
        comm=comm,
        records_per_second=_RECORDS_PER_SECOND,
        stacks_per_second=_STACKS_PER_SECOND,
    )


def watching(threshold: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a click command the common options; it receives them as the keyword `watching`.

    `threshold`: the default of --slower-than.
    """
    options = (
        *WHOSE,
        slower_than(threshold),
        click.option("--worst", is_flag=True, help="Only what takes longer than all before it."),
        click.option(
            "--timeout", type=Duration(), help="Show what has not ended after this time, and again at its end."
        ),
        click.option("--stats", is_flag=True, help="No rows: count, minimum, average, maximum and total, at the end."),
        DURATION,
        OUTPUT,
    )

    def given_to(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_options(**given: Any) -> Any:
            knobs, timeout_s, stats = asked(given), given.pop("timeout"), given.pop("stats")
            knobs = replace(
                knobs,
                threshold_ns=_NEVER_NS if stats else knobs.threshold_ns,
                timeout_ns=round(timeout_s * 1e9) if timeout_s and not stats else 0,
                worst_only=given.pop("worst"),
            )
            wanted = Watching(knobs, given.pop("duration"), given.pop("output"), stats)
            return command(**given, watching=wanted)

        for option in reversed(options):
            with_options = option(with_options)
        return with_options

    return given_to
