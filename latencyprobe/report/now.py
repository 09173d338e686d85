"""The last full minutes of an objective: a few figures, for `top` of a cluster. Pure.

Full minutes alone, as counts come by the minute: of the current one a rate would be too low.
"""

from collections.abc import Callable
from fractions import Fraction

from latencyprobe.bounds import MAX_PEER
from latencyprobe.report import units
from latencyprobe.report.both_ends import Ends
from latencyprobe.report.model import BadStage, Now, PeerNow
from latencyprobe.sli import PeerCounts, SliRow, added_counts, worst
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe.store import LastMinutes

NOW_S = 5 * MINUTE_S
_DIGITS = 2
_SHARE_DECIMALS = 9
_STAGES = 4
_PEERS = 5
_APART, _FEW_APART = 10, 2  # how far figures by peer may be from the counts: percent of these, and events

Stages = Callable[[SliRow], tuple[BadStage, ...]]
ByPeer = Callable[[int, int], LastMinutes | None]


def now(ends: Ends, first: int | None, complete: int, stages: Stages, by_peer: ByPeer) -> Now | None:
    """Return the figures of the last full minutes, `None` without events. `first`: since when it counts;
    `complete`: until when (Unix s) all counts are here; `stages`: of its bad events; `by_peer`: its peers between two
    Unix times."""
    until = complete // MINUTE_S * MINUTE_S
    since = max(until - NOW_S, first or 0)
    if since >= until:
        return None
    row = ends.own(since, until)
    p50, p99 = _quantiles(row)
    if p50 is None or p99 is None:
        return None
    events = row.good + row.bad
    return Now(
        units.time_span(until - since),
        rate(Fraction(events, until - since)),
        share(row.bad, max(events, 1)),
        *(p50, p99, *(_quantiles(ends.other(since, until)) if ends.other else (None, None))),
        stages(row)[:_STAGES],
        _peers(lambda known: row if known == since else ends.own(known, until), by_peer(since, until), until),
    )


def _peers(counted: Callable[[int], SliRow], found: LastMinutes | None, until: int) -> tuple[PeerNow, ...]:
    """Return the worst peers and all others. None where these are not about the events that were counted since, or not
    about the bad ones: some node has not told, or records were lost. A wrong figure is worse than none."""
    if found is None or not found.by_peer or found.since >= until:
        return ()
    row, told = counted(found.since), added_counts(found.by_peer.values())
    if _apart(told.events, row.good + row.bad) or _apart(told.bad, row.bad):
        return ()
    return tuple(_peer(*one, until - found.since) for one in worst(found.by_peer, most=_PEERS).items())


def _apart(told: int, counted: int) -> bool:
    return abs(told - counted) * 100 > _APART * counted + _FEW_APART * 100


def _peer(peer: str, counts: PeerCounts, seconds: int) -> PeerNow:
    p50, p99 = units.quantiles(counts.histogram, units.P50, units.P99, digits=_DIGITS) or ("", "")
    bad = share(counts.bad, max(counts.events, 1))
    return PeerNow(peer[:MAX_PEER], rate(Fraction(counts.events, seconds)), bad, p50, p99)


def rate(value: Fraction) -> str:
    """Return events a second with two digits, whole ones above 100 with three."""
    exact = float(value)
    return f"{float(f'{exact:.{_DIGITS + (exact >= 100)}g}'):.7g}" if exact < 1e6 else f"{exact:.0f}"


def share(bad: int, events: int) -> str:
    """Return what part of the events (> 0) was bad in percent, of less than 10 with two digits, rounded down: what is
    not whole never looks whole."""
    decimals = 0
    while decimals < _SHARE_DECIMALS and bad * 100 * 10**decimals < events * 10 ** (_DIGITS - 1):
        decimals += 1
    return units.percent_of(bad, events, decimals)


def _quantiles(row: SliRow) -> tuple[str | None, str | None]:
    p50, p99 = units.quantiles(row.histogram, units.P50, units.P99, digits=_DIGITS) or (None, None)
    return p50, p99
