"""A report in words: the names and figures that every form for a person shares; sentences are in notes.py. Pure.

The forms only set them. Nothing here is escaped: a form does that for its own.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

import msgspec

from latencyprobe import stages, unsent
from latencyprobe.causes import told
from latencyprobe.plan import Role
from latencyprobe.report import units
from latencyprobe.report.model import EvidenceSummary, LatencyReport, Report, Result, Slow, Stage, WaitedFor
from latencyprobe.report.units import duration_ns
from latencyprobe.slo.evaluate import State

NO_REPORT = "No report yet: `kubectl apply` a LatencyProbe, or measure with `latencyprobe run --port PORT`."
_NO_OBJECTIVES = (
    "No objectives: add spec.objectives to a LatencyProbe (examples/redis.yaml shows one), then measure again."
)
_NONE_EVALUATED = (
    "No objective is evaluated in namespace {0}: `kubectl describe latencyprobes -n {0}` says why, "
    "where spec.objectives has any."
)
HANDSHAKES = "handshakes"  # of the first exchange of a connection
_SIGNALS = {"retransmits": "resent", HANDSHAKES: "connect", "waits": "of it"}  # as a verb, and shorter
_ON_THE_WAY = {stage.name for stage in (stages.NETWORK, stages.WAIT, stages.RECEIVE)}


class Exchange(NamedTuple):
    """A slow exchange, the objective that tells of it, and of which namespace that is, where it is known."""

    result: Result
    slow: Slow
    namespace: str = ""


def no_objectives(report: Report | LatencyReport) -> str:
    """Return why a report has no results, and what to do. In a cluster its LatencyProbes may all be refused."""
    if isinstance(report, LatencyReport) and report.made_by:
        return _NONE_EVALUATED.format(report.metadata.namespace)
    return _NO_OBJECTIVES


def slowest(results: Iterable[Result], namespace: str = "") -> list[Exchange]:
    """Return the slowest exchanges of all results, slowest first; one that several objectives name appears once."""
    found = (Exchange(result, slow, namespace) for result in results for slow in result.slowest)
    distinct = {(one.slow.trace_id, one.result.perspective, one.slow.time): one for one in found}
    return _by_duration(distinct.values())


def slowest_of(reports: Iterable[LatencyReport]) -> list[Exchange]:
    """Return the slowest exchanges of all namespaces, slowest first."""
    return _by_duration(one for report in reports for one in slowest(report.results, report.metadata.namespace))


def _by_duration(found: Iterable[Exchange]) -> list[Exchange]:
    return sorted(found, key=lambda one: -duration_ns(one.slow.duration))


def largest(slow: Slow) -> str:
    """Return an exchange's error, or its longest stage and how long that took; empty where neither is known."""
    stage = None if slow.error else longest(slow)
    return f"{stage.stage} {short(stage.duration, 3)}" if stage else slow.error


def longest(slow: Slow) -> Stage | None:
    """Return an exchange's longest stage, `None` where none is known."""
    return max(slow.stages, key=lambda stage: duration_ns(stage.duration), default=None)


def explained(one: EvidenceSummary, result: Result, slow: Slow) -> str:
    """Return what a signal says of one exchange as a sentence: `resent rto ×2, 812ms`."""
    if one.signal == unsent.SIGNAL:
        return _unsent(one, result, slow)
    count = f" ×{one.count}" if one.count > 1 else ""
    wait = f", {short(one.wait, 3)}" if one.wait else ""
    what = told(one.what) if one.signal == "waits" else one.what
    return f"{_SIGNALS.get(one.signal, one.signal)} {what}{count}{wait}"


def _unsent(one: EvidenceSummary, result: Result, slow: Slow) -> str:
    """Say who held bytes, and whether that is part of what is printed above it: a server's half ends before its own
    kernel sends, and no stage of sending, processing or reading holds it."""
    own = result.perspective == Role.SERVER and one.what.startswith("server")
    stage = longest(slow)
    inside = not own and not slow.error and stage is not None and stage.stage in _ON_THE_WAY
    said = unsent.sentence(one.what, short(one.wait, 3) if one.wait else "0 ms")
    return f"of it {said}" if inside else f"then {said}" if own else said


def waited_for(one: WaitedFor) -> str:
    """Return whom a server waited for while it processed one exchange, and for how long."""
    return f"waited for {one.peer}{f' ×{one.calls}' if one.calls > 1 else ''}, {short(one.wait, 3)}"


def name(result: Result) -> str:
    """Return an objective's name within its namespace."""
    return f"{result.probe}/{result.objective}"


def seen_at(one: Exchange, *, titled: bool = False) -> str:
    """Return at which end of whose connections it was measured: one exchange may be told by both. `titled`: with its
    namespace."""
    whose = f"{one.namespace}/" if titled else ""
    return f"{whose}{one.result.target}, {one.result.perspective.lower()}"


def percent(value: str | None) -> str:
    """Return a share with its unit, empty where it is not known."""
    return "" if value is None else f"{value} %"


def sli(result: Result) -> str:
    """Return it with two digits more than the goal has; what is left off makes it look no better."""
    if result.sli is None:  # of the last minutes, or of all
        return "" if result.window_events is None else "no RPC"
    whole, _, decimals = result.sli.partition(".")
    shown = decimals[: len(result.goal.partition(".")[2]) + 2].rstrip("0")
    return f"{whole}.{shown} %" if shown else f"{whole} %"


def budget(result: Result) -> str:
    """Return the error budget that is left, in words. Too few events say nothing of it."""
    return "" if result.state is State.NO_DATA else budget_left(result.error_budget_remaining)


def budget_left(remaining: str | None) -> str:
    """Return an error budget in percent; of one that is overspent how many times it is spent."""
    left = Decimal(remaining or 0)
    return percent(remaining) if left >= 0 else f"{1 - left / 100:.1f}× spent"


def since(result: Result) -> str:
    """Return where the burn-down begins, in words."""
    return f"{result.burn_down.since[:16].replace('T', ' ')} UTC" if result.burn_down else ""


def weeks(result: Result) -> Iterable[tuple[str, str, str]]:
    """Yield what there is of this window and of the one a week before, by name; nothing where that is not known."""
    before = result.week_before
    if before is None or result.state is State.NO_DATA:
        return
    then = msgspec.structs.replace(
        result, sli=before.sli, error_budget_remaining=before.error_budget_remaining, state=State.MET
    )
    yield "SLI", sli(result), sli(then)
    yield "budget left", budget(result), budget(then)
    yield "bad events", f"{result.bad:,} of {result.events:,}", f"{before.bad:,} of {before.events:,}"
    yield "p99", result.quantiles.p99 if result.quantiles else "", before.p99
    mostly = next((f"{one.stage} {one.share} %" for one in result.bad_by_stage if one.events), "")
    yield "mostly burned by", mostly or "–", f"{before.stage} {before.share} %" if before.stage else "–"


def short(duration: str, digits: int) -> str:
    """Return a duration of the model with at most `digits` significant digits."""
    return units.duration(duration_ns(duration), digits)
