"""Which of the slowest exchanges `latencyprobe explain` is about, and what it says where there is none. Pure.

Chooses words.Exchange of reports; explanation.py has what is said of the one that is chosen.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from latencyprobe.report import units, words
from latencyprobe.report.model import LatencyReport, Slow
from latencyprobe.report.units import duration_ns
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State


def listed(reports: Iterable[LatencyReport], from_ns: int = 0) -> list[Exchange]:
    """Return the slowest exchanges that began at `from_ns` (Unix time) or later: those of the worst objective first, of
    one objective the slowest first. What several objectives name is the worst one's."""
    every = [
        Exchange(result, slow, report.metadata.namespace)
        for report in reports
        for result in report.results
        for slow in result.slowest
        if units.unix_ns(slow.time) >= from_ns
    ]
    every.sort(key=lambda one: (*_from_worst(one), -duration_ns(one.slow.duration)))
    of_worst: dict[tuple[str, ...], Exchange] = {}
    for one in every:
        of_worst.setdefault((one.namespace, one.slow.trace_id, one.result.perspective, one.slow.time), one)
    return list(of_worst.values())


def _from_worst(one: Exchange) -> tuple[object, ...]:
    """Return what sorts objectives: worst state first, then least budget; of too few events nothing is known."""
    result = one.result
    left = Decimal(result.error_budget_remaining or "Infinity")
    state = list(State).index(result.state)
    return result.state is State.NO_DATA, state, left, one.namespace, result.probe, result.objective


def nothing(reports: Sequence[LatencyReport], listed: Sequence[Exchange], trace_id: str, since: str, slow: str) -> str:
    """Return why no exchange is found, and what to do. `trace_id`: how it was to begin; `since`: how far back they were
    asked for, empty for all; `slow`: the command that lists all."""
    if not reports:
        return words.NO_REPORT
    if not any(report.results for report in reports):
        return words.no_objectives(reports[0])
    if listed:
        return f"no RPC whose trace id begins with {trace_id!r} is among the slowest: `{slow}` lists these"
    if since:
        return f"none of the slowest RPCs of each hour began within the last {since}: `{slow}` lists all"
    return "no RPC was recorded yet: send traffic to a target while LatencyProbe measures"


def find(listed: Iterable[Exchange], trace_id: str) -> list[Exchange]:
    """Return the exchanges whose trace id begins so, slowest first: an RPC's client end before its server's."""
    found = (one for one in listed if one.slow.trace_id.startswith(trace_id))
    return sorted(found, key=lambda one: -duration_ns(one.slow.duration))


def ends(listed: Iterable[Exchange], chosen: Exchange) -> list[Exchange]:
    """Return an exchange as each of its ends has measured it, as far as these are listed; it alone without an id."""
    whole = [one for one in find(listed, chosen.slow.trace_id) if one.slow.trace_id == chosen.slow.trace_id]
    return whole if chosen.slow.trace_id else [chosen]


def typical(listed: Sequence[Exchange]) -> Exchange:
    """Return the exchange that stands for those that burned the worst objective's budget: of those whose longest stage
    burned most of it (of all, where none is bad), that with most of the usual signals, then the slowest; where none is
    like that, the objective's slowest. Usual is a signal that explains most of the bad ones, or most of all. `listed`:
    as `listed()` returns them, not empty.
    """
    worst = listed[0].result
    most = worst.bad_by_stage[0].stage if worst.bad_by_stage else ""
    usual = {one.signal for one in worst.evidence if 2 * one.bad > worst.bad or 2 * one.events > worst.events}
    like_most = (one for one in listed if one.result is worst and (not most or _longest(one.slow) == most))
    return max(like_most, key=lambda one: len(usual & _signals(one.slow)), default=listed[0])


def slower(slowest: Slow, chosen: Slow, asked: str) -> str:
    """Return a line about an objective's slowest exchange where another one was chosen, else nothing. `asked`: the
    command that explains another one, but for its trace id."""
    if slowest.trace_id == chosen.trace_id:
        return ""
    took, stage = units.duration(duration_ns(slowest.duration)), _longest(slowest)
    otherwise = "without the evidence that most have" if stage == _longest(chosen) else f"by another stage, {stage}"
    return f"One took longer, {took}, {otherwise}: {asked} {slowest.trace_id}"


def _signals(slow: Slow) -> set[str]:
    return {one.signal for one in slow.evidence}


def _longest(slow: Slow) -> str:
    return stage.stage if (stage := words.longest(slow)) else ""
