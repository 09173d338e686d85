"""Where the commands report, slow and explain take their reports from: this host's store, another one, a cluster.

Their shared options, and what is kept of the reports that these say.
"""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from latencyprobe import parsing
from latencyprobe.errors import ReportError
from latencyprobe.options import PLUGIN, Duration
from latencyprobe.report import build, choosing, headline, kubectl, links, units
from latencyprobe.report.headline import Age, updated_unix_ns
from latencyprobe.report.model import LatencyReport
from latencyprobe.slo.evaluate import windows_needed
from latencyprobe.slo.objective import Objective, objectives
from latencyprobe.slo.windows import MINUTE_S, WINDOW_S
from latencyprobe.store import Counts, Horizons, SqliteStore, Store, default_path

_Command = TypeVar("_Command", bound=Callable[..., object])
_PEERS = 5  # that a message names
_NO_TARGETS = "no report has any: is that the right namespace, or store?"
_ROWS = {3600: "hours", 86_400: "days"}
_NOT_KEPT = "whole hours or days alone are kept of when these begin"


def _whole_minutes(_: click.Context, __: click.Parameter, seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds / MINUTE_S) * MINUTE_S


SINCE = click.option(
    "--since",
    type=Duration(),
    callback=_whole_minutes,
    help="Figures of the last 5m, say; rounded up to whole minutes.",
)
TARGET = click.option("--target", help="Only this target's.")
PEER = click.option("--peer", metavar="TEXT", help="Only peers with this text in their name, and who knows of them.")


def _address(_: click.Context, __: click.Parameter, address: str) -> str:
    if address and (problem := links.problem(address)):
        raise click.BadParameter(problem)
    return address


def trace_url(*forms: str) -> Callable[[_Command], _Command]:
    """Return the option that makes links of trace ids in these forms."""
    said = f"With {' and '.join(forms)}: the page of a trace, {links.MARK} for its id."
    return click.option("--trace-url", metavar="ADDRESS", callback=_address, default="", help=said)


def without_links(*forms: str) -> str:
    """Return what to say of that option with another form."""
    return f"--trace-url goes with -o {' or '.join(forms)}"


class Found(NamedTuple):
    """Reports by namespace; `said`: what has to be known of all of them; `unread`: how many there are besides that
    cannot be read. `counted`: by namespace the last minute (Unix
    s) that this host counted; `since_s`: for how many seconds back the figures are; `past`: as of a moment before."""

    reports: tuple[LatencyReport, ...]
    said: tuple[str, ...] = ()
    counted: Mapping[str, int] = {}
    since_s: int | None = None
    past: bool = False
    unread: int = 0

    def age(self, reports: Sequence[LatencyReport], now: int) -> Age:
        """Return how old the figures of some of these reports are at `now` (Unix s), and where they are of no RPC."""
        counted = [last for one in reports if (last := self.counted.get(one.metadata.namespace))]
        made = [updated_unix_ns(one) // 10**9 for one in reports if one.results]
        if self.past or not made:
            return headline.NOW
        age = headline.counted(now - max(counted)) if counted else headline.updated(now - min(made))
        if self.since_s is None or not without_rpcs(reports):
            return age
        quiet = f"no RPC in the last {units.time_span(self.since_s)}"
        return Age("; ".join(filter(None, (quiet, age.text))), stale=True)


class Source(NamedTuple):
    """Where reports come from: at most one of these. `namespace` "": that of kubectl's context."""

    namespace: str | None
    all_namespaces: bool
    store: str | None
    file: Path | None = None

    @classmethod
    def of(cls, namespace: str | None, all_namespaces: bool, store: str | None, file: Path | None = None) -> "Source":
        """Return what was asked for; by default this host's store, of the plugin the context's namespace.
        Raises UsageError for what excludes each other."""
        chosen = [name for name, given in (("-n", namespace), ("-A", all_namespaces), ("--store", store)) if given]
        context = click.get_current_context()
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} exclude each other", context)
        if not chosen and context.find_root().info_name == PLUGIN:
            namespace = ""
        source = cls(namespace, all_namespaces, store, file)
        if source.is_shared and not file:
            problem = "a shared store has counts alone: `report` asks for it with -f FILE, whose objectives are judged"
            raise click.UsageError(problem, context)
        if file and not source.is_shared:
            raise click.UsageError("-f goes with --store http://HOST:9090", context)
        return source

    @property
    def is_shared(self) -> bool:
        """Return whether they are of a server with the agents' metrics."""
        return (self.store or "").startswith(("http://", "https://"))

    @property
    def of_cluster(self) -> bool:
        """Return whether they come through kubectl."""
        return self.namespace is not None or self.all_namespaces

    def asked_again(self, command: str) -> str:
        """Return how a person asks another command about the same reports."""
        program = click.get_current_context().find_root().info_name
        where = ["-A"] if self.all_namespaces else ["-n", self.namespace] if self.namespace else []
        where += ["--store", self.store] if self.store else []
        return shlex.join([*(program or "").split(), command, *where])

    def read(self, since_s: int | None = None, at: int | None = None) -> Found:
        """Return the reports of now, or as they were at a moment (Unix s). `since_s`: as of `build.build`.

        Raises ReportError where the store does not reach back so far, StoreError, ClusterError.
        """
        if self.of_cluster:
            read = kubectl.reports(self.namespace)
            return Found(read.reports, read.unread, unread=len(read.unread))
        if self.is_shared:
            return self._of_shared(since_s, at)
        with SqliteStore(self.store or default_path(), readonly=True) as opened:
            if at is not None:
                return _past(opened, at, since_s)
            reports = _built(opened, opened.objectives(), int(time.time()), since_s)
            last = ((name, opened.last(name)) for name in (one.metadata.namespace for one in reports))
            counted = {name: minute for name, minute in last if minute is not None}
            return Found(reports, counted=counted, since_s=since_s)

    def _of_shared(self, since_s: int | None, at: int | None) -> Found:
        from latencyprobe.shared_store import shared_counts  # noqa: PLC0415 - HTTP, which no other report needs

        assert self.store is not None
        assert self.file is not None
        judged = tuple(objective for probe in parsing.load_file(self.file) for objective in objectives(probe))
        moment = int(time.time()) if at is None else at
        said = () if at is None else (f"As of {_utc(at)}.",)
        reports = _built(shared_counts(self.store), judged, moment, since_s)
        return Found(reports, said, since_s=since_s, past=at is not None)


def options(command: _Command) -> _Command:
    """Add the options that say where reports come from."""
    for option in (
        click.option(
            "--store", help="A local store; default: this user's own. Of `report` also http://PROMETHEUS:9090."
        ),
        click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces of the cluster, through kubectl."),
        click.option("-n", "--namespace", help="A namespace of the cluster, through kubectl."),
    ):
        command = option(command)
    return command


def chosen(
    reports: tuple[LatencyReport, ...], target: str | None, peer: str | None = None
) -> tuple[LatencyReport, ...]:
    """Return what one target has, and what is known of peers with this text. Raises click.BadParameter for neither."""
    if target is not None:
        targets = {result.target for one in reports for result in one.results}
        if target not in targets:
            known = f"one of {', '.join(sorted(targets))}" if targets else _NO_TARGETS
            raise click.BadParameter(f"{target!r} is no target: {known}", param_hint="--target")
        reports = tuple(of_one for one in reports if (of_one := choosing.of_target(one, target)).results)
    if peer is not None:
        found = tuple(of_peer for one in reports if (of_peer := choosing.of_peer(one, peer)).results)
        if not found:
            names = choosing.peers(reports)
            more = f" and {len(names) - _PEERS} more" if len(names) > _PEERS else ""
            known = ", ".join(names[:_PEERS]) + more or "none"
            raise click.BadParameter(f"no peer has {peer!r} in its name; known are: {known}", param_hint="--peer")
        return found
    return reports


def without_rpcs(reports: Sequence[LatencyReport]) -> bool:
    """Return whether the figures of all are of no RPC."""
    return not any(result.events for one in reports for result in one.results)


def _past(store: Store, at: int, since_s: int | None) -> Found:
    """Return the reports of a moment, aligned down to the rows that the store keeps of it."""
    kept = store.horizons()
    rows_s = _rows_s(kept, at, since_s)
    moment = at - at % rows_s
    reach = f"the store reaches back to {_utc(kept.days)}"
    if not kept.days:
        raise ReportError("the store has no counts yet: measure with `latencyprobe run --port PORT` first")
    counted = store.objectives_at(moment)
    if moment <= kept.days or not counted:
        raise ReportError(f"nothing was counted at {_utc(at)} or is kept of it: {reach}: ask for a later --at")
    if since_s is not None and not kept.tells(moment - since_s, since_s):
        begin, alone = _utc(moment - since_s), _ROWS[kept.finest_s(moment - since_s)]
        span = units.time_span(_told_s(kept, at, since_s))
        raise ReportError(f"of {begin} the store keeps {alone} alone: give --since {span}")
    said = [f"As of {_utc(moment)}"]
    if rows_s > MINUTE_S:
        said[0] += f", from counts of whole {_ROWS[rows_s]}"
    needed = sorted({length_s for objective in counted for length_s in windows_needed(objective)})
    if unknown := [units.time_span(one) for one in needed if not kept.tells(moment - one, one)]:
        said.append(f"Burn rates over {', '.join(unknown)} are not known any more: {_NOT_KEPT}")
    longest_s = max(WINDOW_S[objective.window] for objective in counted)
    if moment - longest_s < kept.days:
        said.append(f"{reach[0].upper()}{reach[1:]}: windows that began before hold what came since")
    reports = _built(store, counted, moment, since_s, past=True)
    return Found(reports, tuple(f"{one}." for one in said), since_s=since_s, past=True)


def _rows_s(kept: Horizons, at: int, since_s: int | None) -> int:
    """Return the width in s of the rows that tell of a moment, or of wider ones in which figures of its last `since_s`
    begin, where these would else be of much more than that."""
    rows_s = kept.finest_s(at)
    begin = at - at % rows_s - (since_s or 0)
    return rows_s if since_s is None or kept.tells(begin, since_s) else kept.finest_s(begin)


def _told_s(kept: Horizons, at: int, since_s: int) -> int:
    """Return the next whole number of hours or days, in s, of which the store tells where it keeps rows of these."""
    lengths = [-(-since_s // width_s) * width_s for width_s in _ROWS]
    begins = [at - at % _rows_s(kept, at, length_s) - length_s for length_s in lengths]
    return next(length_s for length_s, begin in zip(lengths, begins, strict=True) if kept.tells(begin, length_s))


def _built(
    store: Counts, judged: tuple[Objective, ...], now: int, since_s: int | None, *, past: bool = False
) -> tuple[LatencyReport, ...]:
    namespaces = sorted({objective.key.namespace for objective in judged})
    return tuple(
        build.document(
            name,
            build.build(
                store,
                [one for one in judged if one.key.namespace == name],
                now,
                since_s=since_s,
                past=past,
            ),
        )
        for name in namespaces
    )


def _utc(second: int) -> str:
    return units.iso(second * 10**9)[:16].replace("T", " ") + " UTC"
