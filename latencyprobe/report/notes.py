"""What a person should know about one objective beyond its figures, as sentences that every form shares. Pure.

The forms only set them. Nothing here is escaped: a form does that for its own.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from latencyprobe.plan import Role
from latencyprobe.report import both_ends, causes, held, pressure, turns, units
from latencyprobe.report.model import Explained, Result
from latencyprobe.report.words import HANDSHAKES
from latencyprobe.slo.evaluate import State
from latencyprobe.stages import PROCESS

_UNTOLD = {
    "badByStage": "stages of bad RPCs",
    "slowest": "the slowest RPCs",
    "topPeers": "peers",
    "evidence": "evidence",
    "coverage.lost": "lost turns",
    "coverage.gaps": "time not measured",
    "quantiles": "quantiles",
}
_LONGER = 3  # times the last minutes: of less these are most


class Note(NamedTuple):
    """A sentence below an objective. `advice`: it says what to do."""

    text: str
    advice: bool = False


def told(result: Result) -> Iterable[Note]:
    """Yield what a person should know about one objective beyond its figures, most important first."""
    if result.not_measured:
        yield Note(f"not measured now: {result.not_measured}", advice=True)
    if result.reason:
        yield Note(f"not evaluated{' with the latest counts' if result.events else ''}: {result.reason}")
        if not result.events:
            return
    if result.state is State.NO_DATA:
        yield Note(_too_few(result))
    elif result.bad and result.bad_by_stage:
        yield Note("burned by " + ", ".join(f"{s.stage} {s.share} %" for s in result.bad_by_stage[:3] if s.events))
    if lately := _lately(result):
        yield Note(lately)
    if result.waited_for:
        first, *others = result.waited_for[:3]
        more = "".join(f", {one.share} % for {one.peer}" for one in others)
        yield Note(f"of {PROCESS.name}, {first.share} % waiting for {first.peer}{more}")
    if went_to := causes.line(result):
        yield Note(went_to)
    for one in (one for one in result.evidence if one.events):
        yield from _hit(one, result)
    if remedy := held.advice(result):
        yield Note(remedy, advice=True)
    if held_up := pressure.told(result):
        yield Note(held_up)
    if remedy := pressure.advice(result):
        yield Note(remedy, advice=True)
    firing = next((burn for burn in result.burn_rates if burn.state == "Firing"), None)
    if firing and result.state is not State.NO_DATA:  # too few events say nothing
        rates = f"{firing.long_rate}× over {firing.long} and {firing.short_rate}× over {firing.short}"
        yield Note(f"burns {rates}: {firing.severity} above {firing.factor}×")
    if beyond := both_ends.advice(result):
        yield Note(beyond, advice=True)
    seen, facts = result.coverage, [f"{result.bad:,} of {result.events:,} bad"]
    missing = {
        f"{seen.ambiguous:,} ambiguous": seen.ambiguous,
        f"{seen.lost:,} lost": seen.lost,
        f"{units.number(seen.nodes_missing, 'node')} missing": seen.nodes_missing,
        f"{seen.gaps} not measured": seen.gaps != "0s",
    }
    missing |= {f"{one.lost:,} records of {one.signal} lost": one.lost for one in result.evidence}
    if any(missing.values()):
        yield Note(f"coverage {seen.ratio} %: " + ", ".join(text for text, there in missing.items() if there))
    else:
        facts.append(f"coverage {'at most ' if 'coverage.lost' in result.untold else ''}100 %")
    no_rpc, advice = turns.of_coverage(seen), turns.advice(result)
    if advice:
        yield Note(no_rpc)
        yield Note(advice, advice=True)
    facts += _recorded(result)
    if result.quantiles:
        facts.append(f"p50 {result.quantiles.p50}, p99 {result.quantiles.p99}")
    if result.events:
        yield Note("; ".join(facts))
    if of_other := both_ends.told(result):
        yield Note(of_other)
    if result.bad and result.top_peers:
        yield Note("bad by peer: " + ", ".join(f"{peer.peer} {peer.bad:,}" for peer in result.top_peers[:3]))
    if no_rpc and not advice:
        yield Note(no_rpc)
    if result.untold:
        yield Note(untold(result))
    since = f" since {result.since[:16].replace('T', ' ')} UTC" if result.since else ""
    yield Note(
        f"{result.perspective.lower()} side of {result.target} within {result.threshold}, {result.window}{since}"
    )


def _too_few(result: Result) -> str:
    """Return how many events are missing for a verdict, and what brings them where nothing else says so."""
    has = result.events if result.window_events is None else result.window_events
    remedy = ""
    if turns.mostly_none(result):
        remedy = ": most turns count as no RPC"
    elif not has and not result.not_measured:
        remedy = ": send traffic; is the target's port right?"
    return f"needs {result.events_needed:,} events to judge, has {has:,}{remedy}"


def _lately(result: Result) -> str:
    """Return the figures of the last minutes; empty where those before it are of no more, or nothing came."""
    now = result.now
    if now is None or result.window_events is not None or not result.since:
        return ""
    measured_ns = units.unix_ns(result.updated) - units.unix_ns(result.since)
    if measured_ns < _LONGER * units.span_s(now.over) * 10**9:
        return ""
    whose = "callers" if result.perspective == Role.SERVER else "the server"
    other = f", {whose} {now.other_p99}" if now.other_p99 else ""
    mostly = next((f", mostly {one.stage}" for one in now.stages if one.events), "")
    return f"in the last {now.over}: {now.rate}/s, {now.bad} % bad{mostly}; p99 {now.p99}{other}"


def untold(result: Result) -> str:
    """Return what the store that a result was read from does not know."""
    known = (_UNTOLD.get(field, "") for field in result.untold)
    return "not in the metrics that this is read from: " + ", ".join(filter(None, known))


def _hit(one: Explained, result: Result) -> Iterable[Note]:
    """Yield how many events a signal explains. Connecting is before an RPC and in no duration: it is told apart."""
    of_bad = f"{one.bad_share} % of the bad ones, " if result.bad else ""
    if one.signal != HANDSHAKES:
        yield Note(f"{one.signal} hit {of_bad}{one.share} % of all: {one.wait} waited at most")
        return
    yield Note(
        f"before {of_bad}{one.share} % of all, connecting took longer than {result.threshold}: {one.wait} in all, "
        "outside of the RPCs' own time"
    )
    yield Note("keep connections open; `latencyprobe handshakes` there shows which open late, and why", advice=True)


def _recorded(result: Result) -> Iterable[str]:
    """Yield how many turns have a record, where its limit left some out, and how many of those were joined."""
    seen, could_join, of = result.coverage, max(result.events, 1), ""
    if seen.sampled_out:
        could_join, of = max(seen.seen - seen.sampled_out - seen.records_lost, 1), " of these"
        in_percent = f"{units.percent(Fraction(could_join, seen.seen), 1)} % of"
        share = f"1 in {seen.seen / could_join:,.0f}" if seen.seen >= 2 * could_join else in_percent
        yield f"sampled {share} turns"
    if seen.joined:
        yield f"{100 * min(seen.joined, could_join) // could_join} %{of} joined"
