"""`latencyprobe syscalls`: system calls that take long, of whom, where in the kernel, and who called."""

import re
from dataclasses import replace
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe.report import units
from latencyprobe.text import UNKNOWN
from latencyprobe_agent.measure.calls_in_progress import Stacks
from latencyprobe_agent.signals.trackers import SYSCALLS
from latencyprobe_agent.symbols.symbolizer import Symbolizer, inside_calls
from latencyprobe_agent.tools import rows
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.tools.tracking import ended
from latencyprobe_agent.tools.watching import STACKS, Watching, wanted_stacks, watching
from latencyprobe_agent.vocabulary.records import SYSCALL_WORDS
from latencyprobe_agent.vocabulary.returned import returned
from latencyprobe_agent.vocabulary.syscalls import name as call_name
from latencyprobe_agent.vocabulary.syscalls import number

# Calls in which servers wait for work: docs/design/tracker.md, "System calls".
IDLE = (
    *("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "futex", "futex_wait"),
    *("futex_waitv", "accept", "accept4", "recvfrom", "recvmsg", "recvmmsg"),
)
_ROW = "%-15s %-15s %-7s %-7s %-17s %9s %s"
_HEADER = ("TIME", "COMM", "TGID", "TID", "SYSCALL", "DURATION", "RET")
_SHOWN = 3  # kernel stacks of a call, in the table


class CallName(click.ParamType[int]):
    """The name of a system call."""

    name = "call"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return its number."""
        if isinstance(value, int):
            return value
        found = number(str(value))
        if found is None:
            self.fail(f"{value!r} is no system call of this machine, such as fsync", param, ctx)
        return found


class Pattern(click.ParamType[re.Pattern[str]]):
    """A regular expression."""

    name = "regex"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        """Return it compiled."""
        try:
            return re.compile(str(value))
        except re.error as e:
            self.fail(f"{value!r} is no regular expression: {e}", param, ctx)


@click.command(
    epilog="""\b
Examples:
  latencyprobe syscalls --comm redis-server --stacks kernel
  latencyprobe syscalls --all --slower-than 1s --duration 1m
  latencyprobe syscalls --pid 1234 --all-waits --stats
\b
Calls in which programs wait for work (epoll_wait, poll, select, futex, accept, recvmsg and their like) are left out.
TIME is the beginning, in UTC; DURATION of one that goes on begins with >. RET: what it returned, an error by its name.
Kernel stacks: where its thread was blocked, and for how long. User stacks need frame pointers.
Attached, it slows down every system call of the host. Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@click.option(
    "--stacks",
    type=click.Choice(list(STACKS)),
    default="none",
    show_default=True,
    help="Where it waited in the kernel; user: and who called, too.",
)
@click.option("--frame", type=Pattern(), metavar="REGEX", help="Only calls below such a frame; with --stacks user.")
@click.option("--include", multiple=True, type=CallName(), metavar="CALL", help="Follow this wait, too; repeatable.")
@click.option("--exclude", multiple=True, type=CallName(), metavar="CALL", help="Leave this call out; repeatable.")
@click.option("--all-waits", is_flag=True, help="Follow the calls in which programs wait for work, too.")
@watching("20ms")
def syscalls(
    *,
    stacks: str,
    frame: re.Pattern[str] | None,
    include: tuple[int, ...],
    exclude: tuple[int, ...],
    all_waits: bool,
    watching: Watching,
) -> None:
    """Show system calls that take long: whose, which, and where they wait."""
    if frame and stacks != "user":
        raise click.UsageError("--frame needs --stacks user")
    knobs = replace(
        watching.knobs,
        left_out=frozenset((frozenset() if all_waits else idle()) - {*include} | {*exclude}),
        stacks=wanted_stacks("none" if watching.stats else stacks),
    )
    table = Table(watching, frame)
    for found, clock in ended(SYSCALLS, replace(watching, knobs=knobs), attached=table.begin, statistics=table.end):
        for record, of in found:
            table.show(record, of, clock.to_unix(int(record["start_ns"])))


def idle() -> frozenset[int]:
    """Return the numbers of the calls in which servers wait for work."""
    return frozenset(nr for name in IDLE if (nr := number(name)) is not None)


class Table:
    """Rows of the table, or JSON; statistics at the end."""

    def __init__(
        self, watching: Watching, frame: re.Pattern[str] | None = None, symbols: Symbolizer | None = None
    ) -> None:
        self._watching = watching
        self._json = watching.output == "json"
        self._frame = frame
        self._symbols = symbols or Symbolizer()

    def begin(self) -> None:
        """Print the header."""
        if not self._json and not self._watching.stats:
            click.echo(_ROW % _HEADER)

    def show(self, record: np.void, stacks: Stacks, unix_ns: int) -> None:
        """Print a call that began at `unix_ns`."""
        user: list[str] = []
        if stacks.user:
            tgid, began_ns = int(record["tgid"]), int(record["start_ns"])
            user = self._symbols.user(tgid, inside_calls(stacks.user), taken_ns=began_ns)
        if self._frame and not any(map(self._frame.search, user)):
            return
        complete = stacks.user_complete and UNKNOWN not in user
        waits = rows.waits(stacks.kernel, self._symbols)
        if self._json:
            more: dict[str, Any] = {"kernel_stacks": rows.as_objects(waits)} if waits else {}
            more |= {"user_stack": user, "user_stack_complete": complete} if user else {}
            more |= {"stack_truncated": True} if stacks.truncated else {}
            click.echo(msgspec.json.encode({**_as_object(record, unix_ns), **more}))
            return
        click.echo(_row(record, unix_ns))
        for ns, names in waits[:_SHOWN]:
            rows.stack(f"waited {units.duration(ns)}", names)
        if user:
            rows.stack("called by" if complete else "called by (incomplete: code without frame pointers?)", user)
        if stacks.truncated:
            click.echo(" (a stack was deeper than can be shown)")

    def end(self, statistics: NDArray[np.void]) -> None:
        """Print one line for each call that was made."""
        if self._watching.stats:
            rows.statistics(statistics, "syscall", _kind, as_json=self._json)


def syscall(record: np.void) -> str:
    """Return the name of a record's call; the 32-bit table's numbers have none here."""
    nr, compat = record["payload"].tolist()
    return _named(nr, compat=compat)


def _kind(kind: int) -> str:
    """Return the name of a kind of the statistics: behind the numbers that there are come those of the 32-bit table."""
    compat, nr = divmod(kind, SYSCALL_WORDS * 64)
    return _named(nr, compat=compat)


def _named(nr: int, *, compat: int) -> str:
    return f"compat_{nr}" if compat else call_name(nr)


def _row(record: np.void, unix_ns: int) -> str:
    ret = "-" if rows.goes_on(record) else returned(int(record["ret"]))
    text: str = _ROW % (timestamp(unix_ns)[11:26], *rows.whose(record), syscall(record), rows.took(record), ret)
    return text


def _as_object(record: np.void, unix_ns: int) -> dict[str, Any]:
    ret = None if rows.goes_on(record) else int(record["ret"])
    return {**rows.as_object(record, unix_ns), "syscall": syscall(record), "nr": int(record["payload"][0]), "ret": ret}
