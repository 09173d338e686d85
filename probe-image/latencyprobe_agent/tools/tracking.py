"""What a tracker reports, each with its stacks; at the end what it could not report. For every tool of a tracker."""

from collections.abc import Callable, Iterator

import click
import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent import config as settings
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.kernel.tracking import TrackerPrograms
from latencyprobe_agent.measure.calls_in_progress import Call, CallsInProgress, Stacks, call
from latencyprobe_agent.signals.trackers import SYSCALLS, Tracker
from latencyprobe_agent.tools.tail import follow
from latencyprobe_agent.tools.watching import Watching
from latencyprobe_agent.vocabulary.records import TrackedFlag

Ended = tuple[np.void, Stacks]
_NO_LOSS = ("timeouts",)


def ended(
    tracker: Tracker,
    watching: Watching,
    *,
    attached: Callable[[], None] = lambda: None,
    statistics: Callable[[NDArray[np.void]], None] = lambda _: None,
    losses: Callable[[dict[str, int]], None] = lambda _: None,
    programs: TrackerPrograms | None = None,
) -> Iterator[tuple[list[Ended], Clock]]:
    """Attach, and yield what has ended as (TRACKED, its stacks), and the clock for its stamps, until Ctrl-C or the end
    of the duration. A list is empty when nothing has happened.

    At the end `statistics` gets those of all that has ended, by kind, and `losses` what was not reported, by reason.
    `programs`: of the tracker, if they are attached already; they are closed at the end. Raises Unsupported.
    """
    opened = programs or TrackerPrograms.open(settings.from_environment().bpf_dir, tracker, watching.knobs)
    calls = CallsInProgress()

    def over() -> None:
        statistics(opened.statistics())
        told = {what: n for what, n in opened.told().items() if n and what not in _NO_LOSS}
        if calls.dropped:
            told["stacks_dropped"] = calls.dropped
        losses(told | {what: n for what, n in opened.lost().items() if n})
        click.echo("not reported: " + (", ".join(f"{n} ({what})" for what, n in told.items()) or "none"), err=True)

    for batch, clock in follow(opened, watching, attached=attached, ended=over, tick_s=watching.tick_s):
        calls.keep(opened.stacks())  # those of this batch are older than its records
        yield list(calls.ended(batch)), clock


def finished_calls(
    watching: Watching, losses: Callable[[dict[str, int]], None] = lambda _: None
) -> Iterator[list[Call]]:
    """Yield the system calls that ended after the threshold, each once, with their stacks; empty lists as `ended()`."""
    for found, _ in ended(SYSCALLS, watching, losses=losses):
        yield [call(record, stacks) for record, stacks in found if record["flag"] == TrackedFlag.NORMAL]
