"""Rows of a cluster: what its LatencyReports tell of the last full minutes.

LatencyReports are what a user may read, and are written once a minute: what is shown is as old, and says so.
"""

import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from rich.text import Text

from latencyprobe import stages
from latencyprobe.errors import ClusterError
from latencyprobe.report import headline, kubectl, units
from latencyprobe.report.model import LatencyReport, Now, PeerNow, Result
from latencyprobe_agent.tools.top.view import OTHERS, By, Row, View

POLL_S = 5.0  # between two looks at reports that are written once a minute
_KEYS_S = 0.2

Read = Callable[[], kubectl.Read]
Draw = Callable[[View, Sequence[Row], Text], None]


class Looked(NamedTuple):
    """What was found: rows, and what is to be known about them all. `fresh`: nothing of that is a warning."""

    rows: Sequence[Row]
    told: str
    fresh: bool = True

    def told_of(self, view: View) -> str:
        """Return what is to be known of the rows that are shown."""
        nameless = sum(not row.peers for row in self.rows) if view.by is By.PEER else 0
        unknown = f"peers of {units.number(nameless, 'objective')} are not known" if nameless else ""
        return ", ".join(filter(None, (self.told, unknown)))


def looked(reports: Sequence[LatencyReport], now_unix_ns: int, unread: Sequence[str] = ()) -> Looked:
    """Return a row for each objective that had events in the last full minutes, and what to know of them all. `unread`:
    of each report that could not be read why."""
    named = [(report.metadata.namespace, result) for report in reports for result in report.results]
    oldest_ns, whose = min(((units.unix_ns(result.updated), of) for of, result in named), default=(now_unix_ns, ""))
    several = len({namespace for namespace, _ in named}) > 1
    rows = [_row(namespace, result, result.now, several) for namespace, result in named if result.now is not None]
    age = headline.updated((now_unix_ns - oldest_ns) // 10**9)
    said = [f"{whose} {age.text}" if several and age.stale else age.text] if age.text else []
    if quiet := len(named) - len(rows):
        said.append(f"{units.number(quiet, 'objective')} without RPCs")
    if omitted := sum(report.omitted for report in reports):
        said.append(f"{units.number(omitted, 'objective')} found no room in the reports")
    told = ", ".join(said) if rows else _why_empty(named, said)
    return Looked(rows, "; ".join(filter(None, (told, *unread))), bool(rows) and not age.stale and not unread)


def read_by(read: Read) -> Looked:
    """Return what is found now. Raises ClusterError."""
    found = read()
    return looked(found.reports, time.time_ns(), found.unread)


def _why_empty(named: Sequence[tuple[str, Result]], said: Sequence[str]) -> str:
    if not named:
        return "no LatencyReport: `kubectl apply` a LatencyProbe with objectives"
    reasons = dict.fromkeys(result.reason for _, result in named if result.reason)
    why = next(iter(reasons), "") or "`kubectl get latencyprobes` says in MEASURING why"
    return f"{', '.join(said)} in the last minutes: {why}"


def _row(namespace: str, result: Result, now: Now, several: bool) -> Row:
    shares = tuple((one.stage, float(one.share) / 100) for one in now.stages if one.stage in stages.BY_NAME)
    row = Row(
        target=result.target,
        side=result.perspective.lower(),
        process="",
        peer="",
        rate=float(now.rate),
        p50_ns=units.duration_ns(now.p50),
        p99_ns=units.duration_ns(now.p99),
        errors=float(Decimal(now.bad)) / 100,
        stages=shares,
        namespace=namespace,
        objective=f"{f'{namespace}/' if several else ''}{result.probe}/{result.objective}",
        state=result.state.value,
        other_p50_ns=units.duration_ns(now.other_p50) if now.other_p50 else None,
        other_p99_ns=units.duration_ns(now.other_p99) if now.other_p99 else None,
        updated=result.updated,
    )
    return row._replace(peers=tuple(_of_peer(row, peer) for peer in now.peers))


def _of_peer(row: Row, peer: PeerNow) -> Row:
    """Return the row of one peer of an objective, without what nobody knows of it."""
    return row._replace(
        peer=peer.peer or OTHERS,
        rate=float(peer.rate),
        p50_ns=units.duration_ns(peer.p50),
        p99_ns=units.duration_ns(peer.p99),
        errors=float(Decimal(peer.bad)) / 100,
        stages=(),
        other_p50_ns=None,
        other_p99_ns=None,
    )


class Watching(NamedTuple):
    """Shows rows until a key, or `ended`, says no more. `pressed`: keys since it was asked last."""

    read: Read
    pressed: Callable[[], Iterable[str]]
    draw: Draw
    ended: Callable[[], bool]

    def run(self, view: View, found: Looked, *, poll_s: float, until_s: float) -> None:
        """Show what was found, and again what is found each `poll_s`, until `until_s` (monotonic clock)."""
        next_s, drawn = time.monotonic() + poll_s, False
        while not (view.ended or self.ended()):
            before = view
            for key in self.pressed():
                view = view.pressed(key, found.rows)
            if time.monotonic() >= next_s and not view.paused:
                found, drawn = self._again(found), False
                next_s = time.monotonic() + poll_s
                if self.ended():  # kubectl is ended by the same Ctrl-C
                    return
            if not drawn or view != before:
                self.draw(view, found.rows, Text(found.told_of(view), "dim" if found.fresh else "yellow"))
                drawn = True
            if (left_s := until_s - time.monotonic()) <= 0:
                return
            _wait(min(_KEYS_S, left_s))

    def _again(self, found: Looked) -> Looked:
        """Return what is found now; where that fails, what was found before, and why."""
        try:
            return read_by(self.read)
        except ClusterError as error:
            return found._replace(told=f"not read again: {error}", fresh=False)


def _wait(seconds: float) -> None:
    """Wait for a key where there is a terminal to press it on."""
    if sys.stdin and sys.stdin.isatty():
        select.select([sys.stdin], [], [], seconds)
    else:
        time.sleep(seconds)
