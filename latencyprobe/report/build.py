"""A report from a store: asks for the counts, evaluates the objectives, and words what came out as the model has it.

`build` makes the report of the CLI and of the operator alike; `document` makes it a LatencyReport.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

import msgspec

from latencyprobe.api import API_VERSION
from latencyprobe.bounds import MAX_PEER
from latencyprobe.errors import LatencyProbeError, StoreError
from latencyprobe.report import both_ends, causes, coverage, history, pressure, units
from latencyprobe.report.history import When
from latencyprobe.report.model import (
    BadStage,
    BurnRate,
    Coverage,
    Explained,
    LatencyReport,
    Metadata,
    Peer,
    Quantiles,
    Report,
    Result,
    Waited,
)
from latencyprobe.report.now import NOW_S
from latencyprobe.report.now import now as of_now
from latencyprobe.report.room import Verdict, bounded
from latencyprobe.report.slow import STAGES, slow
from latencyprobe.sli import SLOWEST, SliRow, most
from latencyprobe.slo.evaluate import (
    BUDGET_LEFT,
    Burn,
    Events,
    State,
    coverage_ratio,
    evaluate,
    events_needed,
    share_of_good,
    windows_needed,
)
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.slo.windows import WINDOW_S
from latencyprobe.spec import goal_fraction
from latencyprobe.stages import PROCESS
from latencyprobe.store import Counts, Horizons

log = logging.getLogger(__name__)

MAX_REASON = 256
_SIGNALS = 8
NAME = "latency"
KIND = "LatencyReport"


def build(
    store: Counts | None,
    objectives: Iterable[Objective],
    now_unix_s: int,
    nodes_missing: Mapping[ObjectiveKey, int] | None = None,
    incomplete: str = "",
    *,
    since_s: int | None = None,
    past: bool = False,
) -> Report:
    """Evaluate objectives as `judged` does, and return their report, worst first, within its bounds."""
    return bounded(judged(store, objectives, now_unix_s, nodes_missing, incomplete, since_s=since_s, past=past))


def judged(
    store: Counts | None,
    objectives: Iterable[Objective],
    now_unix_s: int,
    nodes_missing: Mapping[ObjectiveKey, int] | None = None,
    incomplete: str = "",
    *,
    since_s: int | None = None,
    past: bool = False,
    lag_s: int = 0,
) -> list[Verdict]:
    """Evaluate objectives at `now_unix_s`; those of one target go together, as both of its ends are told.

    `since_s`: for how many seconds back its figures are; state, budget and burn rates are those of the window anyway.
    `past`: of a moment that is over, as of `history.When`; what the store cannot tell, alerts and the last minutes,
    is left out.
    `nodes_missing`: by objective, how many nodes should measure now and do not. An objective that cannot be evaluated,
    for whatever reason, is Incomplete and takes nothing from the others. `incomplete`: why the store lacks the latest
    counts, or is None; then no result looks healthy. `lag_s`: how late counts may come; the last full minutes are over
    for as long. Raises StoreError when the whole store fails, unless that is told.
    """
    objectives = tuple(objectives)
    kept = cache(store.horizons) if store else Horizons  # asked once: it is about all series
    asked = _Asked(When(now_unix_s, since_s, past), both_ends.pairs(objectives), kept, now_unix_s - lag_s)
    return [
        _judged(store, objective, asked, (nodes_missing or {}).get(objective.key, 0), incomplete)
        for objective in objectives
    ]


def document(namespace: str, report: Report) -> LatencyReport:
    """Return the report as a LatencyReport of `namespace`."""
    return LatencyReport(API_VERSION, KIND, Metadata(NAME, namespace), report.summary, report.results, report.omitted)


_ORDER = {state: rank for rank, state in enumerate(State)}


class _Asked(NamedTuple):
    """What all objectives of a report share: its moment, the series of the other ends, how far the store tells, and
    until when all counts are here."""

    when: When
    ends: both_ends.Pairs
    horizons: Callable[[], Horizons]
    complete: int


def _judged(store: Counts | None, objective: Objective, asked: _Asked, nodes_missing: int, incomplete: str) -> Verdict:
    try:
        if store is None:
            raise StoreError(incomplete)
        found = _judge(store, objective, asked, nodes_missing)
        return _with_reason(found, incomplete) if incomplete else found
    except Exception as error:
        key, foreseen = objective.key, isinstance(error, LatencyProbeError)
        if isinstance(error, StoreError) and error.reason and not incomplete:
            raise
        reason = str(error) if foreseen else f"{type(error).__name__}: {error}: please report this"
        name = f"{key.namespace}/{key.probe}/{key.objective}"
        if not incomplete:
            log.error("objective %s (%s) is not evaluated: %s", name, key.hash, reason, exc_info=not foreseen)
        result = Result(
            *(key.probe, key.objective, objective.target, key.perspective),
            threshold=units.duration(objective.threshold_ns, digits=9),
            goal=objective.goal,
            window=objective.window,
            state=State.INCOMPLETE,
            events=0,
            bad=0,
            events_needed=events_needed(goal_fraction(objective.goal), objective.min_events),
            coverage=Coverage("0", *(0,) * 6, nodes_missing, "0s"),
            updated=units.iso(asked.when.now * 10**9),
            reason=(incomplete or reason)[:MAX_REASON],
        )
        return (_ORDER[result.state], Fraction(0), key.probe, key.objective), result


def _with_reason(found: Verdict, incomplete: str) -> Verdict:
    """Return a verdict of what was stored before: one that would look healthy is Incomplete, by the rule of states."""
    (_, *rank), result = found
    state = State.INCOMPLETE if result.state in BUDGET_LEFT else result.state
    told = msgspec.structs.replace(result, state=state, reason=incomplete[:MAX_REASON])
    return (_ORDER[state], *rank), told  # type: ignore[return-value]  # the rest of a rank is as it was


def _judge(store: Counts, objective: Objective, asked: _Asked, nodes_missing: int) -> Verdict:
    when, kept = asked.when, asked.horizons()
    key, now, until = objective.key, when.now, when.until
    begin = now - WINDOW_S[objective.window]
    row = store.read(key, begin, until)
    whole = Events(row.good, row.bad)
    if not whole.total and (why := store.why_none(key, begin, until)):
        raise StoreError(why)
    lengths = (
        length_s for length_s in windows_needed(objective) if not when.past or kept.tells(now - length_s, length_s)
    )
    burned = {length_s: store.events(key, now - length_s, until) for length_s in lengths}
    verdict = evaluate(objective, row, burned)
    first, ends = store.since(key), both_ends.reads(store, key, asked.ends)
    of_minutes = not when.past or kept.tells(now - NOW_S, NOW_S)
    since = now - (when.since_s or WINDOW_S[objective.window])
    if when.since_s is not None:
        row = _recent(store.read(key, now - when.since_s, until), now - when.since_s)
        verdict = verdict._replace(sli=share_of_good(row), coverage=coverage_ratio(row))
    found = units.quantiles(row.histogram, units.P50, units.P90, units.P99, units.P999)
    result = Result(
        probe=key.probe,
        objective=key.objective,
        target=objective.target,
        perspective=key.perspective,
        threshold=units.duration(objective.threshold_ns, digits=9),
        goal=objective.goal,
        window=objective.window,
        state=verdict.state,
        events=row.good + row.bad,
        bad=row.bad,
        events_needed=verdict.events_needed,
        coverage=coverage.of(row, verdict.coverage, nodes_missing),
        updated=units.iso(now * 10**9),
        sli=None if verdict.sli is None else units.percent(verdict.sli, 5),
        error_budget_remaining=None if verdict.remaining is None else units.percent(verdict.remaining, 1),
        burn_rates=tuple(map(_burn_rate, verdict.burns)),
        quantiles=Quantiles(*found) if found else None,
        bad_by_stage=_bad_by_stage(row),
        evidence=_evidence(row),
        pressure=pressure.of(row),
        slowest=tuple(map(slow, row.slowest)),
        top_peers=tuple(Peer(peer[:MAX_PEER], bad) for peer, bad in list(most(row.peers).items())[:SLOWEST]),
        since=None if first is None else units.iso(max(first, row.minute) * 10**9),
        waited_for=_waited(row),
        causes=causes.of(row),
        burn_down=None if verdict.state is State.NO_DATA else history.burned(store, objective, when, whole, kept),
        week_before=history.week_before(store, objective, when, first, kept),
        other_end=both_ends.of(ends, since, until),
        fastest=both_ends.fastest(ends, row),
        now=of_now(ends, first, asked.complete, _bad_by_stage, partial(store.by_peer, key)) if of_minutes else None,
        untold=store.untold(key, since, until),
        window_events=None if when.since_s is None else whole.total,
    )
    remaining = Fraction(1) if verdict.remaining is None else verdict.remaining
    return (_ORDER[verdict.state], remaining, key.probe, key.objective), result


def _recent(row: SliRow, since: int) -> SliRow:
    """Return a row that begins at `since` without what the store keeps by the hour."""
    slowest = tuple(slow for slow in row.slowest if slow.start_unix_ns >= since * 10**9)
    return msgspec.structs.replace(row, slowest=slowest, peers={}, waited_ns={})


def _burn_rate(burn: Burn) -> BurnRate:
    alert = burn.alert
    state = "Firing" if burn.firing else "Unreachable" if alert.unreachable else "Quiet"
    return BurnRate(
        severity=alert.severity,
        long=units.time_span(alert.long_s),
        short=units.time_span(alert.short_s),
        factor=units.rate(alert.factor) or "",
        state=state,
        long_rate=units.rate(burn.long_rate),
        short_rate=units.rate(burn.short_rate),
    )


def _bad_by_stage(row: SliRow) -> tuple[BadStage, ...]:
    # negative where the window begins between counts and what a pair, joined later, took off them
    both = {
        s: (max(row.dominant.get(s, 0), 0), max(row.stage_ns.get(s, 0), 0)) for s in {**row.stage_ns, **row.dominant}
    }
    stages = sorted((stage for stage in both if any(both[stage])), key=lambda s: (-both[s][0], -both[s][1]))
    return tuple(
        BadStage(
            stage=stage[:63],
            events=both[stage][0],
            share=units.percent(_share(both[stage][0], row.bad), 1),
            time=units.duration(both[stage][1]),
        )
        for stage in stages[:STAGES]
    )


def _waited(row: SliRow) -> tuple[Waited, ...]:
    process_ns = max(row.stage_ns.get(PROCESS.name, 0), 0)
    return tuple(
        Waited(peer[:MAX_PEER], units.duration(ns), units.percent(_share(ns, process_ns), 1))
        for peer, ns in list(most(row.waited_ns).items())[:SLOWEST]
    )


def _evidence(row: SliRow) -> tuple[Explained, ...]:
    return tuple(
        Explained(
            signal=signal[:63],
            events=count.exchanges,
            share=units.percent(_share(count.exchanges, row.good + row.bad), 2),
            bad=count.bad,
            bad_share=units.percent(_share(count.bad, row.bad), 1),
            wait=units.duration(count.wait_ns),
            lost=count.lost,
        )
        for signal, count in sorted(row.evidence.items())[:_SIGNALS]
        if count.exchanges or count.lost
    )


def _share(part: int, whole: int) -> Fraction:
    """Return a share of at most 1; the part may have come a minute after the whole."""
    return Fraction(min(part, whole), whole) if whole else Fraction(bool(part))
