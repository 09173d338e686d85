"""The report for a person: what is wrong, why, and which RPCs to look at, in one glance.

Receives model.Report and a rich Console (which knows about NO_COLOR, pipes and widths) and prints. Called by
`latencyprobe report`, and by the standalone agent at its end.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latencyprobe.report import causes, exchanges, held, pressure, turns, units
from latencyprobe.report.model import LatencyReport, Report, Result
from latencyprobe.slo.evaluate import State
from latencyprobe.stages import PROCESS

_LINE_WIDTH = 100  # beyond it the eye loses the line
_INDENT = 12  # of an objective's details: below its name
_HANGING = 2
_FRESH_S, _STALE_S = 2, 180  # a report of a cluster is written once a minute
_EMPTY = "No objectives: add spec.objectives to a LatencyProbe (examples/redis.yaml shows one), then measure again."


def render(report: Report | LatencyReport, console: Console, title: str = "", since: str = "", age_s: int = 0) -> None:
    """Print the report of one namespace. `title`: its name, where there may be several. `since`: for how long back its
    figures are, if not for each objective's window. `age_s`: how long ago it was made."""
    if not report.results:
        console.print(_EMPTY, style="yellow", highlight=False)
        return
    console.print(_headline(report, title).append_text(_age(age_s)))
    if since:
        console.print(f"Figures of the last {since}; state, budget and burn rates of each objective's window.")
    console.print()
    console.print(_line(("State", "Objective", "SLI", "goal", "budget left"), console, "bold"))
    for result in report.results:
        state = Text(result.state.words, result.state.colour)
        figures = (_sli(result), f"{result.goal} %", _budget(result))
        console.print(_line((state, _name(result), *figures), console))
        for note in _notes(result):
            _print_note(note, console)
    if report.omitted:
        console.print(f"{report.omitted} more objectives are not shown.", highlight=False)
    if found := exchanges.slowest(report.results)[:5]:
        console.print()
        exchanges.render(found, console)


def _headline(report: Report | LatencyReport, title: str) -> Text:
    worst, total = report.results[0], len(report.results) + report.omitted
    met = report.summary[State.MET.column]
    line = Text.assemble((f"{title}: " if title else "", "bold"), f"{met} of {total} objectives met")
    if worst.state is not State.MET:
        line.append("; worst: ").append(_name(worst), "bold").append(" is ")
        line.append(worst.state.words, worst.state.colour)
    return line


def _age(age_s: int) -> Text:
    if age_s < _FRESH_S:
        return Text()
    told = f"; updated {units.time_span(age_s)} ago"
    return Text(told) if age_s < _STALE_S else Text(f"{told}: is the operator running?", "yellow")


def _line(cells: Sequence[str | Text], console: Console, style: str = "") -> Table:
    """Return one line of the objectives; all have the same columns."""
    line = Table.grid(padding=(0, 2, 0, 0))
    line.width = min(console.width, _LINE_WIDTH)
    line.add_column(width=_INDENT - 2, no_wrap=True)
    line.add_column(ratio=1, overflow="fold")
    for width in (10, 10, 12):
        line.add_column(width=width, justify="right", no_wrap=True)
    line.add_row(*cells, style=style)
    return line


def _print_note(note: str | Text, console: Console) -> None:
    """Print a note below its objective; what does not fit its line hangs, so that the next note is seen to begin."""
    width = min(console.width, _LINE_WIDTH) - _INDENT - _HANGING
    for i, line in enumerate((note if isinstance(note, Text) else Text(note)).wrap(console, width)):
        line.rstrip()
        console.print(Padding(line, (0, 0, 0, _INDENT + (_HANGING if i else 0)), expand=False))


def _notes(result: Result) -> Iterable[str | Text]:
    """Yield what a person should know about one objective beyond its figures, most important first."""
    if result.reason:
        yield f"not evaluated{' with the latest counts' if result.events else ''}: {result.reason}"
        return
    if result.state is State.NO_DATA:
        remedy = "send traffic; is the target's port right?"
        if turns.mostly_none(result):
            remedy = "most turns count as no RPC"
        yield f"needs {result.events_needed:,} events to judge, has {result.events:,}: {remedy}"
    elif result.bad and result.bad_by_stage:
        yield "burned by " + ", ".join(f"{s.stage} {s.share} %" for s in result.bad_by_stage[:3] if s.events)
    if result.waited_for:
        first, *others = result.waited_for[:3]
        more = "".join(f", {one.share} % for {one.peer}" for one in others)
        yield f"of {PROCESS.name}, {first.share} % waiting for {first.peer}{more}"
    if went_to := causes.line(result):
        yield went_to
    for one in (one for one in result.evidence if one.events):
        of_bad = f"{one.bad_share} % of the bad ones, " if result.bad else ""
        yield f"{one.signal} hit {of_bad}{one.share} % of all: {one.wait} waited at most"
    if remedy := held.advice(result):
        yield Text(remedy, "yellow")
    if held_up := pressure.told(result):
        yield held_up
    if remedy := pressure.advice(result):
        yield Text(remedy, "yellow")
    firing = next((burn for burn in result.burn_rates if burn.state == "Firing"), None)
    if firing and result.state is not State.NO_DATA:  # too few events say nothing
        rates = f"{firing.long_rate}× over {firing.long} and {firing.short_rate}× over {firing.short}"
        yield f"burns {rates}: {firing.severity} above {firing.factor}×"
    seen, facts = result.coverage, [f"{result.bad:,} of {result.events:,} bad"]
    missing = {
        f"{seen.ambiguous:,} ambiguous": seen.ambiguous,
        f"{seen.lost:,} lost": seen.lost,
        f"{units.number(seen.nodes_missing, 'node')} missing": seen.nodes_missing,
        f"{seen.gaps} not measured": seen.gaps != "0s",
    }
    missing |= {f"{one.lost:,} records of {one.signal} lost": one.lost for one in result.evidence}
    if any(missing.values()):
        yield f"coverage {seen.ratio} %: " + ", ".join(text for text, there in missing.items() if there)
    else:
        facts.append("coverage 100 %")
    no_rpc, advice = turns.of_coverage(seen), turns.advice(result)
    if advice:
        yield no_rpc
        yield Text(advice, "yellow")
    facts += _recorded(result)
    if result.quantiles:
        facts.append(f"p50 {result.quantiles.p50}, p99 {result.quantiles.p99}")
    if result.events:
        yield "; ".join(facts)
    if result.bad and result.top_peers:
        yield "bad by peer: " + ", ".join(f"{peer.peer} {peer.bad:,}" for peer in result.top_peers[:3])
    if no_rpc and not advice:
        yield no_rpc
    since = f" since {result.since[:16].replace('T', ' ')}" if result.since else ""
    yield f"{result.perspective.lower()} side of {result.target} within {result.threshold}, {result.window}{since}"


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


def _name(result: Result) -> str:
    return f"{result.probe}/{result.objective}"


def _percent(value: str | None) -> str:
    return "" if value is None else f"{value} %"


def _sli(result: Result) -> str:
    """Return it with two digits more than the goal has; what is left off makes it look no better."""
    if result.sli is None:
        return ""
    whole, _, decimals = result.sli.partition(".")
    shown = decimals[: len(result.goal.partition(".")[2]) + 2].rstrip("0")
    return f"{whole}.{shown} %" if shown else f"{whole} %"


def _budget(result: Result) -> str:
    if result.state is State.NO_DATA:
        return ""
    left = Decimal(result.error_budget_remaining or 0)
    return _percent(result.error_budget_remaining) if left >= 0 else f"{1 - left / 100:.1f}× spent"
