"""The report for a person: what is wrong, why, and which RPCs to look at, in one glance.

Receives model.Report and a rich Console (which knows about NO_COLOR, pipes and widths) and prints. Called by
`latencyprobe report` and `slow`, and by the standalone agent at its end.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latencyprobe import stages, unsent
from latencyprobe.causes import told
from latencyprobe.plan import Role
from latencyprobe.report import causes, held, pressure, turns, units
from latencyprobe.report.model import EvidenceSummary, LatencyReport, Report, Result, Slow, WaitedFor
from latencyprobe.report.units import duration_ns
from latencyprobe.slo.evaluate import State
from latencyprobe.stages import PROCESS, Stage

_SIGNALS = {"retransmits": "resent", "handshakes": "connect", "waits": "of it"}  # as a verb, and shorter
_ON_THE_WAY = {stage.name for stage in (stages.NETWORK, stages.WAIT, stages.RECEIVE)}
_LINE_WIDTH = 100  # beyond it the eye loses the line
_WIDE = 110  # from here on there is room for the peers
_BAR = 14
_INDENT = 12  # of an objective's details: below its name
_HANGING = 2
_EMPTY = "No objectives: add spec.objectives to a LatencyProbe (examples/redis.yaml shows one), then measure again."


def render(report: Report | LatencyReport, console: Console, title: str = "") -> None:
    """Print the report of one namespace. `title`: its name, where there may be several."""
    if not report.results:
        console.print(_EMPTY, style="yellow", highlight=False)
        return
    console.print(_headline(report, title))
    console.print()
    console.print(_line(("State", "Objective", "SLI", "goal", "budget left"), console, "bold"))
    for result in report.results:
        state = Text(result.state.words, result.state.colour)
        figures = (_percent(result.sli), f"{result.goal} %", _budget(result))
        console.print(_line((state, _name(result), *figures), console))
        for note in _notes(result):
            _print_note(note, console)
    if report.omitted:
        console.print(f"{report.omitted} more objectives are not shown.", highlight=False)
    if exchanges := slowest(report.results)[:5]:
        console.print()
        render_slowest(exchanges, console)


def slowest(results: Iterable[Result]) -> list[tuple[Result, Slow]]:
    """Return the slowest exchanges of all results, slowest first; one that several objectives name appears once."""
    distinct = {(slow.trace_id, r.perspective, slow.time): (r, slow) for r in results for slow in r.slowest}
    return sorted(distinct.values(), key=lambda item: -duration_ns(item[1].duration))


def render_slowest(exchanges: Sequence[tuple[Result, Slow]], console: Console) -> None:
    """Print exchanges with their stages as bars, what explains them below the largest stage, and what the bars mean."""
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("slowest", justify="right", no_wrap=True)
    table.add_column("stages", no_wrap=True)
    table.add_column("mostly, and why" if any(slow.evidence or slow.waited_for for _, slow in exchanges) else "mostly")
    if wide:
        table.add_column("target", overflow="fold")
        table.add_column("peer", overflow="fold")
        table.add_column("UTC", no_wrap=True)
    table.add_column("trace id", no_wrap=True)
    for result, slow in exchanges:
        said = "\n".join((_largest(slow), *(_evidence(one, result, slow) for one in slow.evidence)))
        context = [result.target, slow.peer, slow.time[5:16].replace("T", " ")] if wide else []
        # as Text: a name in brackets is no markup
        row = [Text(_short(slow.duration, 4)), _bar(slow, console), *map(Text, (said, *context, slow.trace_id))]
        table.add_row(*row)
        for one in slow.waited_for:
            table.add_row("", "", *map(Text, (_waited_for(one), *("" for _ in context), one.trace_id)))
    console.print(table)
    drawn = {stage for _, slow in exchanges for stage, glyphs in _glyphs(slow) if glyphs}
    legend = [
        Text.assemble((_block(stage, console), _stage(stage).colour), f" {stage}")
        for stage in dict.fromkeys((*stages.BY_NAME, *sorted(drawn)))
        if stage in drawn
    ]
    console.print(Text("  ").join(legend))


def _headline(report: Report | LatencyReport, title: str) -> Text:
    worst, total = report.results[0], len(report.results) + report.omitted
    met = report.summary[State.MET.column]
    line = Text.assemble((f"{title}: " if title else "", "bold"), f"{met} of {total} objectives met")
    if worst.state is not State.MET:
        line.append("; worst: ").append(_name(worst), "bold").append(" is ")
        line.append(worst.state.words, worst.state.colour)
    return line


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
    if firing := next((burn for burn in result.burn_rates if burn.state == "Firing"), None):
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


def _bar(slow: Slow, console: Console) -> Text:
    return Text.assemble(*((_block(stage, console) * glyphs, _stage(stage).colour) for stage, glyphs in _glyphs(slow)))


def _glyphs(slow: Slow) -> Iterable[tuple[str, int]]:
    """Yield the stages in order, each with how much of the bar it takes; what is too short takes nothing."""
    lengths_ns = [duration_ns(stage.duration) for stage in slow.stages]
    total_ns, reached_ns, reached = sum(lengths_ns) or 1, 0, 0
    for stage, length_ns in zip(slow.stages, lengths_ns, strict=True):
        reached_ns += length_ns
        glyphs = round(_BAR * reached_ns / total_ns) - reached
        reached += glyphs
        yield stage.stage, glyphs


def _largest(slow: Slow) -> str:
    if slow.error or not slow.stages:
        return slow.error
    stage = max(slow.stages, key=lambda stage: duration_ns(stage.duration))
    return f"{stage.stage} {_short(stage.duration, 3)}"


def _evidence(one: EvidenceSummary, result: Result, slow: Slow) -> str:
    if one.signal == unsent.SIGNAL:
        return _unsent(one, result, slow)
    count = f" ×{one.count}" if one.count > 1 else ""
    wait = f", {_short(one.wait, 3)}" if one.wait else ""
    what = told(one.what) if one.signal == "waits" else one.what
    return f"{_SIGNALS.get(one.signal, one.signal)} {what}{count}{wait}"


def _unsent(one: EvidenceSummary, result: Result, slow: Slow) -> str:
    """Say who held bytes, and whether that is part of what is printed above it: a server's half ends before its own
    kernel sends, and no stage of sending, processing or reading holds it."""
    own = result.perspective == Role.SERVER and one.what.startswith("server")
    largest = max(slow.stages, key=lambda stage: duration_ns(stage.duration)).stage if slow.stages else ""
    inside = not own and not slow.error and largest in _ON_THE_WAY
    said = unsent.sentence(one.what, _short(one.wait, 3) if one.wait else "0 ms")
    return f"of it {said}" if inside else f"then {said}" if own else said


def _waited_for(one: WaitedFor) -> str:
    return f"waited for {one.peer}{f' ×{one.calls}' if one.calls > 1 else ''}, {_short(one.wait, 3)}"


def _block(stage: str, console: Console) -> str:
    return "█" if console.color_system and not console.no_color else _stage(stage).glyph


def _stage(name: str) -> Stage:
    """Return how to draw a stage; one of another version has no glyph of its own."""
    return stages.BY_NAME.get(name, Stage(name, -1, "?", "white", ""))


def _name(result: Result) -> str:
    return f"{result.probe}/{result.objective}"


def _percent(value: str | None) -> str:
    return "" if value is None else f"{value} %"


def _budget(result: Result) -> str:
    left = Decimal(result.error_budget_remaining or 0)
    return _percent(result.error_budget_remaining) if left >= 0 else f"{1 - left / 100:.1f}× spent"


def _short(duration: str, digits: int) -> str:
    return units.duration(duration_ns(duration), digits)
