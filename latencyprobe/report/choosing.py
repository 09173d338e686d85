"""What a person wants to see of a report: one target's, one peer's, the worst first or by name, so many. Pure.

State, SLI and budget stay those of the whole objective.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from latencyprobe.report import headline
from latencyprobe.report.headline import summary
from latencyprobe.report.model import LatencyReport, Result
from latencyprobe.slo.evaluate import State


class Sort(StrEnum):
    """By what objectives are sorted: the worst first, or their name."""

    STATE = "state"
    BUDGET = "budget"
    BURN = "burn"
    NAME = "name"


def of_target(report: LatencyReport, target: str) -> LatencyReport:
    """Return the report with the results of one target alone."""
    return _with(report, (one for one in report.results if one.target == target))


def of_peer(report: LatencyReport, text: str) -> LatencyReport:
    """Return the objectives that know of a peer with this text in its name, of their peers with these alone."""
    kept = (
        replace(
            one,
            slowest=tuple(slow for slow in one.slowest if text in slow.peer or _any(slow.waited_for, text)),
            top_peers=tuple(peer for peer in one.top_peers if text in peer.peer),
            waited_for=tuple(peer for peer in one.waited_for if text in peer.peer),
        )
        for one in report.results
    )
    return _with(report, (one for one in kept if one.slowest or one.top_peers or one.waited_for))


def peers(reports: Iterable[LatencyReport]) -> list[str]:
    """Return all peers that the objectives know of, those of most bad events first."""
    results = [result for report in reports for result in report.results]
    bad = sorted((peer for one in results for peer in one.top_peers), key=lambda peer: -peer.bad)
    found = [peer.peer for peer in bad]
    found += [slow.peer for one in results for slow in one.slowest]
    found += [waited.peer for one in results for waited in one.waited_for]
    return [peer for peer in dict.fromkeys(found) if peer]


def sorted_by(report: LatencyReport, by: Sort) -> LatencyReport:
    """Return it sorted; what has no such figure comes last, and equals stay as they were: by state."""
    return replace(report, results=tuple(sorted(report.results, key=_KEYS[by])))


def first(report: LatencyReport, limit: int | None) -> LatencyReport:
    """Return its first results; the others count as omitted, and in the summary; the worst is named."""
    shown, worst = report.results[:limit], headline.worst(report)
    left_out = worst.name if worst and worst.place is not None and worst.place >= len(shown) else ""
    return replace(report, results=shown, omitted=report.omitted + len(report.results) - len(shown), worst=left_out)


def _with(report: LatencyReport, results: Iterable[Result]) -> LatencyReport:
    kept = tuple(results)
    return replace(report, summary=summary(kept), results=kept, omitted=0)


def _any(found: Iterable[Any], text: str) -> bool:
    return any(text in one.peer for one in found)


def _left(result: Result) -> Decimal:
    left = None if result.state is State.NO_DATA else result.error_budget_remaining
    return Decimal("Infinity") if left is None else Decimal(left)


def _burn(result: Result) -> Decimal:
    """Return the fastest that both windows of an alert burn, negative so that it comes first."""
    known = result.burn_rates if result.state is not State.NO_DATA else ()
    both = (min(Decimal(one.long_rate or 0), Decimal(one.short_rate or 0)) for one in known)
    return -max(both, default=Decimal(-1))


_KEYS: dict[Sort, Callable[[Result], Any]] = {
    Sort.STATE: lambda result: list(State).index(result.state),
    Sort.BUDGET: _left,
    Sort.BURN: _burn,
    Sort.NAME: lambda result: (result.probe, result.objective),
}
