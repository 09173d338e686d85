"""The options that every live tool has: which sockets, for how long, in what form."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from latencyprobe.options import DURATION, OUTPUT
from latencyprobe_agent.kernel.evidence import Filter

PROCESS = click.IntRange(1, 1 << 22)  # include/linux/threads.h: PID_MAX_LIMIT


@dataclass(frozen=True)
class Options:
    """`duration_s` None: until Ctrl-C. `output`: table or json."""

    socket_filter: Filter
    duration_s: float | None
    output: str


class Address(click.ParamType[str]):
    """An IPv4 or IPv6 address."""

    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it in its usual form."""
        try:
            return str(ipaddress.ip_address(str(value)))
        except ValueError:
            self.fail(f"{value!r} is no address such as 10.0.0.1 or 2001:db8::1", param, ctx)


def _cgroup_id(ctx: click.Context, param: click.Parameter, value: Path | None) -> int:
    if value is None:
        return 0
    if not (value / "cgroup.controllers").exists():
        said = f"{value} is no cgroup of version 2: take one below its tree, which `mount -t cgroup2` shows"
        raise click.BadParameter(said, ctx, param)
    return value.stat().st_ino  # kernfs: the inode is the cgroup's id


def _one_family(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value and ctx.meta.setdefault("family", value) != value:
        raise click.UsageError("-4 and -6 exclude each other: leave both out for both families", ctx)
    return value


def cgroup_option(told: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --cgroup, whose value is the cgroup's id, 0 for none. `told`: its help."""
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--cgroup", type=folder, callback=_cgroup_id, metavar="FOLDER", help=told)


_OPTIONS = (
    click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Only this port, on either end."),
    click.option("--addr", type=Address(), metavar="ADDRESS", help="Only this address, on either end."),
    click.option("--pid", type=PROCESS, metavar="PID", help="Only sockets that this process connected."),
    cgroup_option("Only of this cgroup, none below it: such as /sys/fs/cgroup/system.slice/nginx.service."),
    click.option("-4", "family4", flag_value=4, type=int, callback=_one_family, help="Only IPv4."),
    click.option("-6", "family6", flag_value=6, type=int, callback=_one_family, help="Only IPv6."),
    DURATION,
    OUTPUT,
)


def tool_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command the common options; it receives them as the keyword `options`."""

    @wraps(command)
    def with_options(**given: Any) -> Any:
        family = given.pop("family4") or given.pop("family6") or 0
        given.pop("family6", None)
        socket_filter = Filter(
            given.pop("port") or 0, given.pop("addr") or "", given.pop("pid") or 0, given.pop("cgroup"), family
        )
        options = Options(socket_filter, given.pop("duration"), given.pop("output"))
        return command(**given, options=options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
