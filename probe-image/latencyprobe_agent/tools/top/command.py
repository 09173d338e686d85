"""`latencyprobe top`: which RPCs of this host are slow now, by target, end, process and peer."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path

import click
import msgspec
from rich.console import Console

from latencyprobe import asked
from latencyprobe.ending import ending
from latencyprobe.options import OUTPUT, Duration
from latencyprobe.plan import NodePlan
from latencyprobe_agent import config as settings
from latencyprobe_agent.identity.local import local_plan
from latencyprobe_agent.loop.agent import Agent, Audience
from latencyprobe_agent.loop.control import LocalControl
from latencyprobe_agent.measure.turn import Listener, Turn
from latencyprobe_agent.tools.top import screen
from latencyprobe_agent.tools.top.tally import Tally
from latencyprobe_agent.tools.top.view import Row, Sort, View, rows
from latencyprobe_agent.vocabulary.now import Now

_PIPE_WIDTH = 120


@click.command(
    epilog="""\b
Examples:
  latencyprobe top --port 6379
  latencyprobe top --port 6379 --port 5432 --sort rate --peer 10.0.
  latencyprobe top -f examples/redis.yaml --plain --duration 10s
  latencyprobe top --port 8080 -o json | jq 'select(.p99_ns > 5e6)'
\b
Rows are of the last interval alone. Keys: q ends, space pauses, s sorts, / filters, Esc shows all.
Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@asked.file_or_ports
@click.option("--interval", type=Duration(), default="2s", show_default=True, help="What a row is of, and how often.")
@click.option("--sort", type=click.Choice(list(Sort)), default=Sort.P99, show_default=True, help="The largest first.")
@click.option("--peer", default="", metavar="TEXT", help="Only rows with this text: a peer, process, target or side.")
@click.option("-w", "--plain", is_flag=True, help="Print tables one after the other, as on a pipe.")
@click.option("--duration", type=Duration(), help="End by itself after this time, such as 1m.")
@OUTPUT
def top(
    *,
    file: Path | None,
    ports: tuple[int, ...],
    interval: float,
    sort: Sort,
    peer: str,
    plain: bool,
    duration: float | None,
    output: str,
) -> None:
    """Show which RPCs of this host are slow now: by target, process and peer."""
    config = settings.from_environment()
    plan, notices = local_plan(asked.probes(file, ports), config.node, b"")
    for notice in notices:
        click.echo(f"latencyprobe: {notice}", err=True)
    control = LocalControl(_without_evidence(plan), lambda _: None)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    view = View(Sort(sort), peer)

    @contextmanager
    def opened(_: Now) -> Iterator[Sequence[Listener]]:
        with ExitStack() as stack:
            stack.enter_context(ending(agent.stop))
            if output == "json":
                draw: _Draw = _print_json
            elif plain or not console.is_terminal or not sys.stdin.isatty():
                draw = partial(screen.print_plain, console)
                console.print("attached; Ctrl-C ends", style="dim")
            else:
                draw = stack.enter_context(screen.Screen(console)).draw
            keys = stack.enter_context(screen.Keys())
            yield (Top(view, keys, draw, agent.stop, interval),)

    agent = Agent(config, control, Audience(opened))
    agent.run(duration)


_Draw = Callable[[View, Sequence[Row], int], None]


class Top(Listener):
    """Adds up the turns of an interval, then draws them; keys change the view at once."""

    name = "top"

    def __init__(self, view: View, keys: screen.Keys, draw: _Draw, stop: Callable[[], None], interval_s: float) -> None:
        self._view = view
        self._keys = keys
        self._draw = draw
        self._stop = stop
        self._interval_s = interval_s
        self._tally = Tally()
        self._found: Sequence[Row] = ()
        self._lost = 0
        self._since_s = time.monotonic()

    def take(self, turn: Turn) -> None:
        """Add a turn; draw when the interval is over, or a key was pressed."""
        before = self._view
        for key in self._keys.pressed():
            self._view = self._view.pressed(key)
        if self._view.ended:
            self._stop()
        self._tally.add(turn.halves)
        self._lost = sum(turn.stats.lost.values()) if turn.stats else self._lost
        passed_s = time.monotonic() - self._since_s
        if passed_s >= self._interval_s:
            self._since_s += passed_s
            sums = self._tally.take()
            if not self._view.paused:
                self._found = rows(sums, turn.in_force.rules.sets, _process_name, passed_s)
                self._draw(self._view, self._found, self._lost)
                return
        if self._view != before:
            self._draw(self._view, self._found, self._lost)

    def close(self) -> None:
        """Leave the screen to others: it is closed by who opened it."""


@lru_cache(maxsize=4096)
def _process_name(tgid: int) -> str:
    try:
        name = Path(f"/proc/{tgid}/comm").read_text(errors="replace").strip()
    except OSError:
        name = "(ended)"
    return f"{name} {tgid}"


def _print_json(view: View, found: Sequence[Row], _: int) -> None:
    unix_ns = time.time_ns()
    for row in view.shown(found):
        click.echo(screen.as_json(row, unix_ns))


def _without_evidence(plan: NodePlan) -> NodePlan:
    """Return the plan with nothing attached that `top` does not show."""
    targets = tuple(msgspec.structs.replace(target, evidence=()) for target in plan.targets)
    return msgspec.structs.replace(plan, targets=targets)
