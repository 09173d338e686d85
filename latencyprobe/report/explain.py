"""One exchange for a person: its stages one below the other on one axis, what explains them, and what shows more.

Chooses words.Exchange of reports; receives one, of one or both of its ends, and a rich Console, and prints.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latencyprobe import stages
from latencyprobe.plan import Role
from latencyprobe.report import evidence, exchanges, units, words
from latencyprobe.report.model import LatencyReport, Result, Slow, Stage
from latencyprobe.report.units import duration_ns
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State

_NARROWEST, _WIDEST = 10, 60  # of the axis
_BESIDE_AXIS = 40  # names, durations, shares
_MORE = {  # where the longest stage alone does not say why: on the host where it happened
    stages.PROCESS: "latencyprobe syscalls, offcpu: what the server's threads waited for",
    stages.READ_DELAY: "latencyprobe offcpu: what kept the reader from its CPU",
    stages.NETWORK: "latencyprobe retransmits, tcprt: what TCP did meanwhile",
    stages.SEND: "latencyprobe tcprt: whether the other end read slowly",
    stages.RECEIVE: "latencyprobe tcprt, retransmits: how the message came",
    stages.WAIT: "nothing of the server's half is known: is it measured? its own objective tells",
}
_ACCEPTED_LATE = (
    "the first on its connection: waiting for accept() is part of its read_delay; `ss -ltn` shows that queue (Recv-Q), "
    "more workers take from it sooner"
)
_ELSEWHERE = "trace {} (not listed here: ask where spans go)"
_KIND = {
    stages.CLIENT_SEND: stages.SEND,
    stages.SERVER_SEND: stages.SEND,
    stages.SERVER_PROCESS: stages.PROCESS,
    stages.SERVER_READ_DELAY: stages.READ_DELAY,
    stages.CLIENT_READ_DELAY: stages.READ_DELAY,
}


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
        return words.NO_OBJECTIVES
    if listed:
        return f"no RPC whose trace id begins with {trace_id!r} is among the slowest: `{slow}` lists these"
    if since:
        return f"none of the slowest RPCs of each hour began within the last {since}: `{slow}` lists all"
    return "no RPC was recorded yet: send traffic to a target while LatencyProbe measures"


def find(listed: Iterable[Exchange], trace_id: str) -> list[Exchange]:
    """Return the exchanges whose trace id begins so, slowest first: an RPC's client end before its server's."""
    found = (one for one in listed if one.slow.trace_id.startswith(trace_id))
    return sorted(found, key=lambda one: -duration_ns(one.slow.duration))


def typical(listed: Sequence[Exchange]) -> Exchange:
    """Return the exchange that stands for those that burned the worst objective's budget: its slowest whose longest
    stage burned most of it; where none is like that, its slowest. `listed`: as `listed()` returns them, at least one.
    """
    worst = listed[0].result
    most = worst.bad_by_stage[0].stage if worst.bad_by_stage else ""
    like_most = (one for one in listed if one.result is worst and _longest(one.slow) == most)
    return next(like_most, listed[0])


def slower(slowest: Slow, chosen: Slow, asked: str) -> str:
    """Return a line about an objective's slowest exchange where another one was chosen, else nothing. `asked`: as of
    `render`."""
    if slowest.trace_id == chosen.trace_id:
        return ""
    took = units.duration(duration_ns(slowest.duration))
    return f"One took longer, {took}, by another stage, {_longest(slowest)}: {asked} {slowest.trace_id}"


def render(
    ends: Sequence[Exchange], console: Console, asked: str, known: Container[str], *, titled: bool = False
) -> None:
    """Print one exchange, as each of its ends (at least one) has measured it. `asked`: the command that explains
    another one, but for its trace id; `known`: the trace ids that it finds; `titled`: with their namespaces."""
    console.print(Text.assemble("trace ", (ends[0].slow.trace_id, "bold")))
    for one in ends:
        console.print()
        console.print(_title(one, titled=titled))
        console.print(Padding(_waterfall(one.slow, console), (0, 0, 0, 2)))
        for line in _why(one.result, one.slow, asked, known):
            console.print(Padding(Text(line), (0, 0, 0, 2)))


def _title(one: Exchange, *, titled: bool) -> Text:
    result, slow, namespace = one
    since = slow.time.replace("T", " ").removesuffix("Z")
    objective = f"{namespace}/{words.name(result)}" if titled else words.name(result)
    other = "client" if result.perspective == Role.SERVER else "server"
    halves = f", joined with the {other}'s half" if slow.joined else ""
    peer = f"; at the other end {slow.peer}" if slow.peer else ""
    error = f"; failed: {slow.error}" if slow.error else ""
    return Text.assemble(
        (units.duration(duration_ns(slow.duration), 4), "bold"),
        f" from {since} UTC on, at the {result.perspective.lower()}'s side of {result.target}{halves}{peer}",
        f"; objective {objective}: ",
        (result.state.words, result.state.colour),
        (error, "bold red"),
    )


def _waterfall(slow: Slow, console: Console) -> Table:
    axis = max(_NARROWEST, min(_WIDEST, console.width - _BESIDE_AXIS))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(width=axis, no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    lengths_ns = [duration_ns(stage.duration) for stage in slow.stages]
    total_ns, reached_ns = sum(lengths_ns) or 1, 0
    for stage, length_ns in zip(slow.stages, lengths_ns, strict=True):
        begin, end = (round(axis * at / total_ns) for at in (reached_ns, reached_ns + length_ns))
        reached_ns += length_ns
        drawn = exchanges.block(stage.stage, console) * (end - begin) or "·" * (length_ns > 0)
        bar = Text(" " * min(begin, axis - len(drawn))).append(drawn, exchanges.stage_of(stage.stage).colour)
        share = units.percent(Fraction(length_ns, total_ns), 1)
        table.add_row(Text(stage.stage), bar, units.duration(length_ns), f"{share} %")
    return table


def _longest(slow: Slow) -> str:
    return stage.stage if (stage := words.longest(slow)) else ""


def _why(result: Result, slow: Slow, asked: str, known: Container[str]) -> Iterable[str]:
    longest = words.longest(slow)
    if longest:
        stage = exchanges.stage_of(longest.stage)
        yield f"mostly {longest.stage}: {stage.meaning}" if stage.meaning else f"mostly {longest.stage}"
    for one in slow.evidence:
        yield f"{'before it' if evidence.is_before(one) else 'why'}: {evidence.sentence(one, result, slow)}"
    if longest and _opened_connection(slow) and _of_server(result, longest.stage) is stages.READ_DELAY:
        yield f"why: {_ACCEPTED_LATE}"
    for call in slow.waited_for:
        yield f"why: {words.waited_for(call)}"
        yield f"     {asked} {call.trace_id}" if call.trace_id in known else f"     {_ELSEWHERE.format(call.trace_id)}"
    if longest and not _is_explained(longest, result, slow) and (more := _MORE.get(_kind(longest))):
        yield f"more: {more}"


def _is_explained(longest: Stage, result: Result, slow: Slow) -> bool:
    """Return whether at least half of the longest stage is known. Signals may tell of the same time, and so may calls
    that were waited for: what tells most counts alone."""
    stage, told_ns = _kind(longest), Counter[str]()
    for one in slow.evidence:
        if one.wait and evidence.is_part_of(stage, one, result):
            told_ns[one.signal] += duration_ns(one.wait)
    if stage is stages.PROCESS:
        told_ns["calls"] = sum(duration_ns(call.wait) for call in slow.waited_for)
    return 2 * max(told_ns.values(), default=0) >= duration_ns(longest.duration)


def _kind(stage: Stage) -> stages.Stage:
    drawn = exchanges.stage_of(stage.stage)
    return _KIND.get(drawn, drawn)


def _opened_connection(slow: Slow) -> bool:
    """Return whether it was the first on its connection: only such a one is explained by the handshake."""
    return any(one.signal == words.HANDSHAKES for one in slow.evidence)


def _of_server(result: Result, name: str) -> stages.Stage | None:
    """Return which stage of the server's that is, `None` where it is the client's own or the way."""
    stage = exchanges.stage_of(name)
    if stage is stages.SERVER_READ_DELAY:
        return stages.READ_DELAY
    return stage if result.perspective == Role.SERVER else None
