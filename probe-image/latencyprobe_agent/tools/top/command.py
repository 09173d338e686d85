"""`latencyprobe top`: which RPCs are slow now: of this host by target, of a cluster by objective."""

import enum
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from latencyprobe import asked
from latencyprobe.ending import ending
from latencyprobe.errors import ClusterError, OutputError
from latencyprobe.options import DURATION, OUTPUT, Duration
from latencyprobe.output import can_redraw, figures_console
from latencyprobe.plan import NodePlan
from latencyprobe_agent import config as settings
from latencyprobe_agent.identity.local import local_plan
from latencyprobe_agent.identity.process_name import process_name
from latencyprobe_agent.loop.agent import Agent, Audience
from latencyprobe_agent.loop.control import LocalControl
from latencyprobe_agent.measure.turn import Listener, Turn
from latencyprobe_agent.tools.top import screen
from latencyprobe_agent.tools.top.tally import Tally
from latencyprobe_agent.tools.top.view import OF_CLUSTER, OF_HOST, By, Row, Sort, View, rows
from latencyprobe_agent.vocabulary.now import Now

_INTERVAL_S = 2.0
_INSTEAD = ", or of a cluster -n NAMESPACE or -A"


@click.command(
    epilog="""\b
Examples:
  latencyprobe top --port 6379
  latencyprobe top --port 6379 --port 5432 --sort rate --peer 10.0.
  latencyprobe top -f examples/redis.yaml --plain --duration 10s
  latencyprobe top --port 8080 -o json | jq 'select(.p99_ns > 5e6)'
  latencyprobe top -n shop                     a namespace of the cluster; -A for all
  latencyprobe top -n shop --by peer           ... by caller, or of callers' objectives by server
\b
Rows are of the last interval alone; of a cluster of the last five full minutes, as its LatencyReports tell, with bad
ones in place of errors, the worst state first; by peer the five worst of each objective, and the others together. Keys:
q ends, space pauses, s sorts, b is by peer and back (of a cluster), / filters, Esc shows all; j and k, arrows, PgDn and
PgUp scroll.
This host's need root, or CAP_BPF and CAP_PERFMON; a cluster's a kubectl that may get latencyreports.
"""
)
@asked.file_or_ports
@click.option(
    "--interval", type=Duration(), help="How often; on a host also what a row is of [default: 2s, of a cluster 5s]"
)
@click.option(
    "--sort",
    type=click.Choice([one.value for one in Sort]),
    help="The largest first; of a cluster the worst state, then p99 [default: p99, of a cluster state]",
)
@click.option(
    "--by",
    type=click.Choice([one.value for one in By]),
    help="What a row is of [default: peer, of a cluster objective]",
)
@click.option("--peer", default="", metavar="TEXT", help="Only rows with this text: a peer, process, target or side.")
@click.option("-n", "--namespace", help="A namespace of the cluster, through kubectl.")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces of the cluster, through kubectl.")
@click.option("-w", "--plain", is_flag=True, help="Print tables one after the other, as on a pipe.")
@DURATION
@OUTPUT
def top(
    *,
    file: Path | None,
    ports: tuple[int, ...],
    interval: float | None,
    namespace: str | None,
    all_namespaces: bool,
    sort: str | None,
    by: str | None,
    peer: str,
    plain: bool,
    duration: float | None,
    output: str,
) -> None:
    """Show which RPCs are slow now: of this host by target, process and peer, of a cluster by objective."""
    console = figures_console()
    of_cluster = namespace is not None or all_namespaces
    sorts = OF_CLUSTER if of_cluster else OF_HOST
    if sort == Sort.STATE and not of_cluster:
        raise click.UsageError("--sort state goes with -n or -A: objectives have one", click.get_current_context())
    if by == By.OBJECTIVE and not of_cluster:
        raise click.UsageError("--by objective goes with -n or -A: a host has none", click.get_current_context())
    view = View(Sort(sort) if sort else sorts[0], peer, sorts=sorts, by=By(by or By.OBJECTIVE))
    form = _Form.of(console, plain, output)
    if of_cluster:
        if file or ports or (namespace is not None and all_namespaces):
            raise click.UsageError("-f, --port, -n and -A exclude each other", click.get_current_context())
        _of_cluster(console, view, form, None if all_namespaces else namespace, (interval, duration))
        return
    interval = interval or _INTERVAL_S
    config = settings.from_environment()
    plan, notices = local_plan(asked.probes(file, ports, instead=_INSTEAD), config.node, b"")
    for notice in notices:
        click.echo(f"latencyprobe: {notice}", err=True)
    control = LocalControl(_without_evidence(plan), lambda _: None)

    @contextmanager
    def opened(_: Now) -> Iterator[Sequence[Listener]]:
        with ExitStack() as stack:
            stack.enter_context(ending(agent.stop))
            draw = _drawing(stack, console, form)
            if form is _Form.PLAIN:
                console.print("attached; Ctrl-C ends", style="dim")
            keys = stack.enter_context(screen.Keys())
            shown = Top(view, keys, draw, agent.stop, interval)
            yield (shown,)
            if shown.problem:
                raise shown.problem

    agent = Agent(config, control, Audience(opened))
    agent.run(duration)


class _Form(enum.Enum):
    """How rows are shown."""

    SCREEN = enum.auto()
    PLAIN = enum.auto()
    JSON = enum.auto()

    @classmethod
    def of(cls, console: Console, plain: bool, output: str) -> "_Form":
        """Return the form asked for; without a terminal to draw on and to press keys it is not the screen."""
        if output == "json":
            return cls.JSON
        has_keys = bool(sys.stdin and sys.stdin.isatty())
        return cls.SCREEN if can_redraw(console) and has_keys and not plain else cls.PLAIN


_Draw = Callable[[View, Sequence[Row], Text], None]


def _drawing(stack: ExitStack, console: Console, form: _Form) -> _Draw:
    """Return who shows rows, until `stack` is closed."""
    if form is _Form.SCREEN:
        return stack.enter_context(screen.Screen(console)).draw
    return _print_json if form is _Form.JSON else partial(screen.print_plain, console)


def _of_cluster(
    console: Console, view: View, form: _Form, namespace: str | None, pace: tuple[float | None, float | None]
) -> None:
    """Show rows of LatencyReports. `pace`: seconds between two looks, and until the end; without the latter a pipe has
    one look."""
    from latencyprobe.report import kubectl  # noqa: PLC0415 - an agent starts no kubectl
    from latencyprobe_agent.tools.top import cluster  # noqa: PLC0415 - it needs none of the reports' forms

    interval_s, duration_s = pace
    read = partial(kubectl.reports, namespace)
    once = duration_s is None and form is not _Form.SCREEN and not console.is_terminal
    until_s = time.monotonic() + (0 if once else math.inf if duration_s is None else duration_s)
    with ExitStack() as stack:
        ended = stack.enter_context(_ended())
        try:
            found = cluster.read_by(read)  # its failure is no matter of the screen
        except ClusterError:
            if ended():  # kubectl is ended by the same Ctrl-C
                return
            raise
        keys = screen.Keys()
        draw = _print_json_and_told if form is _Form.JSON else _drawing(stack, console, form)
        stack.enter_context(keys)
        watching = cluster.Watching(read, keys.pressed, draw, ended)
        watching.run(view, found, poll_s=interval_s or cluster.POLL_S, until_s=until_s)


@contextmanager
def _ended() -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C or SIGTERM asked for the end."""
    asked_for: list[bool] = []
    with ending(lambda: asked_for.append(True)):
        yield lambda: bool(asked_for)


class Top(Listener):
    """Adds up the turns of an interval, then draws them; keys change the view at once. `problem`: why nothing can be
    drawn any more; a listener that raised would be skipped, and nobody see that."""

    name = "top"

    def __init__(self, view: View, keys: screen.Keys, draw: _Draw, stop: Callable[[], None], interval_s: float) -> None:
        self.problem: OutputError | BrokenPipeError | None = None
        self._view = view
        self._keys = keys
        self._draw = draw
        self._stop = stop
        self._interval_s = interval_s
        self._tally = Tally()
        self._found: Sequence[Row] = ()
        self._lost = Text()
        self._since_s = time.monotonic()

    def take(self, turn: Turn) -> None:
        """Add a turn; draw when the interval is over, or a key was pressed."""
        before = self._view
        for key in self._keys.pressed():
            self._view = self._view.pressed(key, self._found)
        if self._view.ended:
            self._stop()
        self._tally.add(turn.halves)
        self._lost = _lost(sum(turn.stats.lost.values())) if turn.stats else self._lost
        passed_s = time.monotonic() - self._since_s
        if passed_s >= self._interval_s:
            self._since_s += passed_s
            sums = self._tally.take()
            if not self._view.paused:
                self._found = rows(sums, turn.in_force.rules.sets, _process_name, passed_s)
                self._show()
                return
        if self._view != before:
            self._show()

    def _show(self) -> None:
        try:
            self._draw(self._view, self._found, self._lost)
        except (OutputError, BrokenPipeError) as error:
            self.problem = error
            self._stop()

    def close(self) -> None:
        """Leave the screen to others: it is closed by who opened it."""


def _lost(records: int) -> Text:
    return Text(f"{records:,} lost" if records else "", "bold red")


@lru_cache(maxsize=4096)
def _process_name(tgid: int) -> str:
    return f"{process_name(tgid) or '(ended)'} {tgid}"


def _print_json(view: View, found: Sequence[Row], _: Text) -> None:
    unix_ns = time.time_ns()
    for row in view.shown(found):
        click.echo(screen.as_json(row, unix_ns))


def _print_json_and_told(view: View, found: Sequence[Row], told: Text) -> None:
    if told.style != "dim":  # a warning
        click.echo(f"latencyprobe: {told.plain}", err=True)
    _print_json(view, found, told)


def _without_evidence(plan: NodePlan) -> NodePlan:
    """Return the plan with nothing attached that `top` does not show."""
    targets = tuple(msgspec.structs.replace(target, evidence=()) for target in plan.targets)
    return msgspec.structs.replace(plan, targets=targets)
