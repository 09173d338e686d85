"""The report's one model, in the shape of a LatencyReport; every rendering and the operator's resource come from it.

`build` asks a store and evaluates; the table, JSON and the LatencyReport only render what it returns. Numbers that are
no counts are text with a unit or in percent (units.py). crds/latencyreport.yaml bounds the same fields.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from latencyprobe.bounds import MAX_PEER
from latencyprobe.errors import LatencyProbeError
from latencyprobe.manifest import API_VERSION
from latencyprobe.report import units
from latencyprobe.sli import HITS, SLOWEST, SliRow, SlowExchange, most
from latencyprobe.slo.evaluate import Burn, Evaluation, State, evaluate, events_needed, windows_needed
from latencyprobe.slo.histogram import quantile_ns
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.slo.windows import WINDOW_S
from latencyprobe.spec import goal_fraction
from latencyprobe.store import Store

log = logging.getLogger(__name__)

MAX_RESULTS = 256
MAX_BYTES = 256 << 10  # of the LatencyReport: what etcd and a watcher can bear once a minute
MAX_REASON = 256
_STAGES = 16
_SIGNALS = 8
_WHOLE = 16  # results that keep their slowest exchanges whatever the size: 16 × 12 KiB at their longest
NAME = "latency"
KIND = "LatencyReport"


class _Model(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class BurnRate(_Model, frozen=True):
    """One alert. `state`: Firing, Quiet, or Unreachable where the goal is so low that it can never fire."""

    severity: str
    long: str
    short: str
    factor: str
    state: str
    long_rate: str | None = None
    short_rate: str | None = None


class Quantiles(_Model, frozen=True):
    """Durations that this share of the events did not exceed, within 1.1 %."""

    p50: str
    p90: str
    p99: str
    p999: str


class BadStage(_Model, frozen=True):
    """Of the bad events: how many this stage dominated, their share in percent, and the time spent in it."""

    stage: str
    events: int
    share: str
    time: str


class Explained(_Model, frozen=True):
    """What TCP did to the events, by signal: how many it hit and how many of them were bad, each also in percent of all
    and of the bad ones; `wait`: the time that it cost them at most. From records: exchanges whose record was lost are
    not among them."""

    signal: str
    events: int
    share: str
    bad: int
    bad_share: str
    wait: str


class Coverage(_Model, frozen=True):
    """What stands behind the counts. `ratio` in percent (slo/evaluate.py); `gaps`: node time that was not measured."""

    ratio: str
    seen: int
    ambiguous: int
    excluded: int
    lost: int
    records_lost: int
    joined: int
    nodes_missing: int
    gaps: str


class Stage(_Model, frozen=True):
    """One stage of an exchange."""

    stage: str
    duration: str


class Hit(_Model, frozen=True):
    """What a signal says of one exchange (sli.Hit): `what` and how often, and the time that it tells of."""

    signal: str
    what: str
    count: int = 0
    wait: str = ""


class Slow(_Model, frozen=True):
    """One of the slowest exchanges of the window. `evidence`: what explains it, longest wait first."""

    trace_id: str
    time: str
    duration: str
    stages: tuple[Stage, ...]
    peer: str = ""
    error: str = ""
    joined: bool = False
    evidence: tuple[Hit, ...] = ()


class Peer(_Model, frozen=True):
    """Bad events at one other end."""

    peer: str
    bad: int


class Result(_Model, frozen=True):
    """One objective. `sli`, `goal` and `errorBudgetRemaining` in percent; absent where there are no events. `reason`:
    why it could not be evaluated; it is Incomplete then, and without figures."""

    probe: str
    objective: str
    target: str
    perspective: str
    threshold: str
    goal: str
    window: str
    state: State
    events: int
    bad: int
    events_needed: int
    coverage: Coverage
    updated: str
    sli: str | None = None
    error_budget_remaining: str | None = None
    burn_rates: tuple[BurnRate, ...] = ()
    quantiles: Quantiles | None = None
    bad_by_stage: tuple[BadStage, ...] = ()
    evidence: tuple[Explained, ...] = ()
    slowest: tuple[Slow, ...] = ()
    top_peers: tuple[Peer, ...] = ()
    since: str | None = None
    reason: str = ""


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """Objectives by state."""

    met: int
    at_risk: int
    violated: int
    incomplete: int
    no_data: int


class Report(_Model, frozen=True):
    """The objectives of one namespace, worst first. `omitted`: results that found no room."""

    summary: Summary
    results: tuple[Result, ...]
    omitted: int = 0


class Metadata(_Model, frozen=True):
    """What a report's reader needs of its metadata."""

    name: str
    namespace: str = ""


class LatencyReport(_Model, frozen=True):
    """A report as the resource that the API server keeps, and as `report -o json` prints it."""

    api_version: str
    kind: str
    metadata: Metadata
    summary: Summary
    results: tuple[Result, ...]
    omitted: int = 0


def build(
    store: Store,
    objectives: Iterable[Objective],
    now_unix_s: int,
    nodes_missing: Mapping[ObjectiveKey, int] | None = None,
) -> Report:
    """Evaluate objectives at `now_unix_s` and return their report, worst first, within its bounds.

    `nodes_missing`: by objective, how many nodes should measure now and do not. An objective that cannot be evaluated,
    for whatever reason, is Incomplete and takes nothing from the others.
    """
    verdicts = [
        _judged(store, objective, now_unix_s, (nodes_missing or {}).get(objective.key, 0)) for objective in objectives
    ]
    verdicts.sort(key=lambda verdict: verdict[0])
    return _bounded([result for _, result in verdicts])


def document(namespace: str, report: Report) -> LatencyReport:
    """Return the report as a LatencyReport of `namespace`."""
    return LatencyReport(API_VERSION, KIND, Metadata(NAME, namespace), report.summary, report.results, report.omitted)


_ORDER = {state: rank for rank, state in enumerate(State)}
_Rank = tuple[int, Fraction, str, str]


def _judged(store: Store, objective: Objective, now: int, nodes_missing: int) -> tuple[_Rank, Result]:
    try:
        return _judge(store, objective, now, nodes_missing)
    except Exception as error:
        key, foreseen = objective.key, isinstance(error, LatencyProbeError)
        reason = str(error) if foreseen else f"{type(error).__name__}: {error}: please report this"
        name = f"{key.namespace}/{key.probe}/{key.objective}"
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
            updated=units.iso(now * 10**9),
            reason=reason[:MAX_REASON],
        )
        return (_ORDER[result.state], Fraction(0), key.probe, key.objective), result


def _judge(store: Store, objective: Objective, now: int, nodes_missing: int) -> tuple[_Rank, Result]:
    key = objective.key
    until = now + 1  # with the current second, which at a full minute is in a row of its own
    row = store.read(key, now - WINDOW_S[objective.window], until)
    burned = {length_s: store.events(key, now - length_s, until) for length_s in windows_needed(objective)}
    verdict = evaluate(objective, row, burned)
    first = store.since(key)
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
        coverage=_coverage(row, verdict, nodes_missing),
        updated=units.iso(now * 10**9),
        sli=None if verdict.sli is None else units.percent(verdict.sli, 5),
        error_budget_remaining=None if verdict.remaining is None else units.percent(verdict.remaining, 1),
        burn_rates=tuple(map(_burn_rate, verdict.burns)),
        quantiles=_quantiles(row),
        bad_by_stage=_bad_by_stage(row),
        evidence=_evidence(row),
        slowest=tuple(map(_slow, row.slowest)),
        top_peers=tuple(Peer(peer[:MAX_PEER], bad) for peer, bad in list(most(row.peers).items())[:SLOWEST]),
        since=None if first is None else units.iso(max(first, row.minute) * 10**9),
    )
    remaining = Fraction(1) if verdict.remaining is None else verdict.remaining
    return (_ORDER[verdict.state], remaining, key.probe, key.objective), result


def _bounded(results: Sequence[Result]) -> Report:
    """Keep within MAX_RESULTS and MAX_BYTES: the best give up their witnesses first, then their place."""
    summary = Summary(*(sum(r.state is state for r in results) for state in _SUMMARY))
    kept = list(results[:MAX_RESULTS])
    sizes = [len(msgspec.json.encode(result)) for result in kept]
    room = MAX_BYTES - 4096  # metadata with its owner references, summary
    for i in reversed(range(_WHOLE, len(kept))):
        if sum(sizes) > room:
            kept[i] = msgspec.structs.replace(kept[i], slowest=(), top_peers=())
            sizes[i] = len(msgspec.json.encode(kept[i]))
    while sum(sizes) > room:
        kept.pop()
        sizes.pop()
    return Report(summary, tuple(kept), len(results) - len(kept))


_SUMMARY = (State.MET, State.AT_RISK, State.VIOLATED, State.INCOMPLETE, State.NO_DATA)


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


def _quantiles(row: SliRow) -> Quantiles | None:
    found = [quantile_ns(row.histogram, Fraction(q)) for q in ("0.5", "0.9", "0.99", "0.999")]
    return Quantiles(*(units.duration(value_ns or 0) for value_ns in found)) if found[0] is not None else None


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
        for stage in stages[:_STAGES]
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
        )
        for signal, count in sorted(row.evidence.items())[:_SIGNALS]
        if count.exchanges
    )


def _share(part: int, whole: int) -> Fraction:
    """Return a share of at most 1; the part may have come a minute after the whole."""
    return Fraction(min(part, whole), whole) if whole else Fraction(bool(part))


def _coverage(row: SliRow, verdict: Evaluation, nodes_missing: int) -> Coverage:
    seen = row.coverage
    return Coverage(
        ratio=units.percent(verdict.coverage, 1),
        seen=seen.seen,
        ambiguous=seen.ambiguous,
        excluded=seen.excluded,
        lost=seen.lost,
        records_lost=seen.records_lost,
        joined=seen.joined,
        nodes_missing=nodes_missing,
        gaps=units.time_span(max(0, seen.wanted_ms - seen.measured_ms) // 1000),
    )


def _slow(exchange: SlowExchange) -> Slow:
    stages = list(exchange.stages.items())[:_STAGES]
    return Slow(
        trace_id=exchange.trace_id[:32],
        time=units.iso(exchange.start_unix_ns),
        duration=units.duration(exchange.duration_ns, digits=6),
        stages=tuple(Stage(stage[:63], units.duration(value_ns, digits=6)) for stage, value_ns in stages),
        peer=exchange.peer[:MAX_PEER],
        error=exchange.error[:63],
        joined=exchange.joined,
        evidence=tuple(
            Hit(hit.signal[:63], hit.what[:63], hit.count, units.duration(hit.wait_ns) if hit.wait_ns else "")
            for hit in exchange.evidence[:HITS]
        ),
    )
