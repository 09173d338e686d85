"""`latencyprobe offcpu`: tasks that are off their processor for long: why, where they wait, and who wakes them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.calls_in_progress import Stacks
from latencyprobe_agent.signals.trackers import OFFCPU
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from latencyprobe_agent.tools import rows
from latencyprobe_agent.tools.retransmits import without_hook
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.tools.tracking import ended
from latencyprobe_agent.tools.watching import STACKS, Watching, watching
from latencyprobe_agent.vocabulary.records import OffcpuReason, StackOptionFlags

_ROW = "%-15s %-15s %-7s %-7s %-13s %s"
_HEADER = ("TIME", "COMM", "TGID", "TID", "REASON", "DURATION")
_OFF = {"preempted": "preempted in", "throttled": "throttled in"}
# an interrupt has no task of its own: x86-64, arm64
_INTERRUPTS = ("asm_sysvec_", "asm_common_interrupt", "asm_exc_nmi", "el1h_64_irq", "el0t_64_irq")


@click.command(
    epilog="""\b
Examples:
  latencyprobe offcpu --pid 1234
  latencyprobe offcpu --comm postgres --slower-than 5ms --waker
\b
Reasons: preempted (it could have gone on), throttled (mostly the CPU quota of its cgroup was used up), interruptible
(it waits for something), disk (uninterruptible: for the disk, or for a lock in the kernel), other (stopped, traced).
TIME is the beginning, in UTC; DURATION of one that goes on begins with >. Threads that wait for work are off their
processor, too. Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@click.option(
    "--stacks",
    type=click.Choice(["none", "kernel"]),
    default="kernel",
    show_default=True,
    help="Where it waited in the kernel.",
)
@click.option("--waker", is_flag=True, help="Who woke it, and from where.")
@watching("20ms")
def offcpu(*, stacks: str, waker: bool, watching: Watching) -> None:
    """Show tasks that are off their processor for long: whose, why, and where they wait."""
    wanted = STACKS[stacks]
    if waker:
        wanted |= StackOptionFlags.WAKER
    table = Table(watching)
    knobs = replace(watching.knobs, stacks=StackOptionFlags(0) if watching.stats else wanted)
    for found, clock in ended(OFFCPU, replace(watching, knobs=knobs), attached=table.begin, statistics=table.end):
        for record, of in found:
            table.show(record, of, clock.to_unix(int(record["start_ns"])))


class Table:
    """Rows of the table, or JSON; statistics at the end."""

    def __init__(self, watching: Watching, symbols: Symbolizer | None = None) -> None:
        self._watching = watching
        self._json = watching.output == "json"
        self._symbols = symbols or Symbolizer()

    def begin(self) -> None:
        """Print the header."""
        if not self._json and not self._watching.stats:
            click.echo(_ROW % _HEADER)

    def show(self, record: np.void, stacks: Stacks, unix_ns: int) -> None:
        """Print a wait that began at `unix_ns`."""
        blocked = [names for _, names in rows.waits(stacks.kernel, self._symbols)]
        woken_from = without_hook(self._symbols.kernel(stacks.waker))
        if self._json:
            more: dict[str, Any] = {"kernel_stack": blocked[0]} if blocked else {}
            if stacks.woken_by:
                name, tgid, tid = stacks.woken_by
                more["waker"] = {"comm": name, "tgid": tgid, "tid": tid, "kernel_stack": woken_from}
                more["waker"]["interrupt"] = by_interrupt(woken_from)
            more |= {"stack_truncated": True} if stacks.truncated else {}
            click.echo(msgspec.json.encode({**rows.as_object(record, unix_ns), "reason": reason(record), **more}))
            return
        clock = timestamp(unix_ns)[11:26]
        click.echo(_ROW % (clock, *rows.whose(record), reason(record), rows.took(record)))
        for names in blocked:
            rows.stack(_OFF.get(reason(record), "blocked in"), names)
        if stacks.woken_by:
            rows.stack(_woken(stacks.woken_by, woken_from), woken_from)
        if stacks.truncated:
            click.echo(" (a stack was deeper than can be shown)")

    def end(self, statistics: NDArray[np.void]) -> None:
        """Print one line for each reason that there was."""
        if self._watching.stats:
            rows.statistics(statistics, "reason", lambda kind: OffcpuReason(kind).name.lower(), as_json=self._json)


def reason(record: np.void) -> str:
    """Return why the task left its processor."""
    return OffcpuReason(int(record["payload"][0])).name.lower()


def by_interrupt(woken_from: Sequence[str]) -> bool:
    """Return whether a waker's stack is an interrupt's: the task that it came upon has nothing to do with it then."""
    return any(name.startswith(_INTERRUPTS) for name in woken_from)


def _woken(by: tuple[str, int, int], woken_from: Sequence[str]) -> str:
    name, tgid, tid = by
    task = f"{name}, process {tgid}, thread {tid}" if tgid else "an idle processor"
    return f"woken by an interrupt (of {task})" if by_interrupt(woken_from) else f"woken by {task}"
