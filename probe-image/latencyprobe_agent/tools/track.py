"""`latencyprobe track`: the trackers that have no tool of their own, each a row: wake-ups, first bytes, packets."""

from dataclasses import replace
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.trackers import NET, TTFB, WAKEUP
from latencyprobe_agent.tools import rows
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.tools.tracking import ended
from latencyprobe_agent.tools.watching import Watching, watching

_ROW = "%-15s %-15s %-7s %-7s %s"
_HEADER = ("TIME", "COMM", "TGID", "TID", "DURATION")
_TRACKERS = {"wakeup": WAKEUP, "ttfb": TTFB, "net": NET}


@click.command(
    epilog="""\b
  wakeup   from being woken to having a processor: a full run queue; one that was preempted: latencyprobe offcpu
  ttfb     from accept() to the first send on the connection, by whom sends; not what io_uring accepts
  net      of packets, from the interface to the first copy by the process that reads it; runs for each packet
\b
Examples:
  latencyprobe track wakeup --all --slower-than 10ms
  latencyprobe track ttfb --comm nginx --stats --duration 1m
\b
TIME is the beginning, in UTC; DURATION of one that goes on begins with >.
Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@click.argument("tracker", type=click.Choice(list(_TRACKERS)))
@watching("1ms")
def track(*, tracker: str, watching: Watching) -> None:
    """Show what takes long of one kind: wakeup, ttfb, net."""
    of = _TRACKERS[tracker]
    table = Table(tracker, watching)
    knobs = replace(watching.knobs, gc_threshold_ns=of.gc_threshold_ns)
    for found, clock in ended(of, replace(watching, knobs=knobs), attached=table.begin, statistics=table.end):
        for record, _ in found:
            table.show(record, clock.to_unix(int(record["start_ns"])))


class Table:
    """Rows of the table, or JSON; statistics at the end."""

    def __init__(self, name: str, watching: Watching) -> None:
        self._name = name
        self._watching = watching
        self._json = watching.output == "json"

    def begin(self) -> None:
        """Print the header."""
        if not self._json and not self._watching.stats:
            click.echo(_ROW % _HEADER)

    def show(self, record: np.void, unix_ns: int) -> None:
        """Print what began at `unix_ns`."""
        if self._json:
            more: dict[str, Any] = {"bytes": int(record["payload"][0])} if self._name == "net" else {}
            click.echo(msgspec.json.encode({**rows.as_object(record, unix_ns), "tracker": self._name, **more}))
        else:
            click.echo(_ROW % (timestamp(unix_ns)[11:26], *rows.whose(record), rows.took(record)))

    def end(self, statistics: NDArray[np.void]) -> None:
        """Print one line of all that there was."""
        if self._watching.stats:
            rows.statistics(statistics, "tracker", lambda _: self._name, as_json=self._json)
