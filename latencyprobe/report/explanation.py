"""One exchange explained: what each of its ends has measured, where its halves lie on one axis, the sentences. Pure.

Made of words.Exchange, of one or both ends of one RPC; explanation_table.py and html.py set it for a terminal and for a
page, and word nothing themselves. Nothing here is escaped.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from latencyprobe import stages
from latencyprobe.plan import Role
from latencyprobe.report import drawing, evidence, exchanges, units, words
from latencyprobe.report.drawing import Mark
from latencyprobe.report.model import Result, Slow, Stage
from latencyprobe.report.units import duration_ns
from latencyprobe.report.words import Exchange

MORE = {  # where the longest stage alone does not say why: on the host where it happened
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
KIND = {
    stages.CLIENT_SEND: stages.SEND,
    stages.SERVER_SEND: stages.SEND,
    stages.SERVER_PROCESS: stages.PROCESS,
    stages.SERVER_READ_DELAY: stages.READ_DELAY,
    stages.CLIENT_READ_DELAY: stages.READ_DELAY,
}
_READ_BY_CLIENT = {stages.READ_DELAY.name, stages.CLIENT_READ_DELAY.name}  # after the last byte of the answer came
_LATEST = (
    "as if the answer had taken no time on its way: how the time of both ways is shared out is not known, "
    "for no clocks are compared"
)
_APART = "from the beginning of the client's half: how the two lie in time is not known of one that failed"


class Row(NamedTuple):
    """A stage of a half: where it lies on the axis, how long it took, and its share of the half in percent."""

    mark: Mark
    duration: str
    share: str


class Line(NamedTuple):
    """A sentence. `lead`: what kind it is. Of a call that was waited for: `trace_id`, and `command`, which explains it;
    empty where it is not listed."""

    lead: str
    said: str
    trace_id: str = ""
    command: str = ""

    @property
    def elsewhere(self) -> str:
        """Return where to find the call that is not listed, in words; empty for one that is, and without one."""
        return "not listed here: ask where spans go" if self.trace_id and not self.command else ""


class Half(NamedTuple):
    """An exchange as one end has measured it. `title`: between its duration and the state of its objective."""

    of: Exchange
    duration: str
    title: str
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]

    @property
    def side(self) -> str:
        """Return whose half it is, in words."""
        return f"the {self.of.result.perspective.lower()}'s half"

    @property
    def failed(self) -> str:
        """Return how it failed, in words; empty where it did not."""
        return f"failed: {self.of.slow.error}" if self.of.slow.error else ""


class Explanation(NamedTuple):
    """An RPC. `axis_ns`: how long the axis is that all its halves lie on; `asked`: the command that explains it;
    `said`: what else is to be known."""

    trace_id: str
    axis_ns: int
    halves: tuple[Half, ...]
    asked: str
    said: str = ""


def explanation(
    ends: Sequence[Exchange], asked: str, known: Container[str], *, titled: bool = False, said: str = ""
) -> Explanation:
    """Return what there is to say of one RPC. `ends`: at least one; `asked`: the command that explains another one, but
    for its trace id; `known`: the trace ids that it finds; `titled`: with their namespaces."""
    starts_ns = _starts_ns(ends)
    axis_ns = max(start + _length_ns(one.slow) for start, one in zip(starts_ns, ends, strict=True))
    halves = tuple(
        Half(
            one,
            words.short(one.slow.duration, 4),
            _title(one, titled=titled),
            tuple(_rows(one.slow, start_ns, axis_ns)),
            (*_drawn(one, ends), *_why(one, ends, asked, known)),
        )
        for start_ns, one in zip(starts_ns, ends, strict=True)
    )
    trace_id = ends[0].slow.trace_id
    return Explanation(trace_id, axis_ns, halves, f"{asked} {trace_id}", said)


def _clients(ends: Iterable[Exchange]) -> Iterator[Exchange]:
    return (one for one in ends if one.result.perspective == Role.CLIENT)


def _starts_ns(ends: Sequence[Exchange]) -> list[int]:
    """Return where each half begins on the axis, which begins with the client's half if that is known.

    A server's half lies within the client's, but no two clocks are compared. So its end is drawn where the last byte of
    the answer had come to the client, as the stages of a pair are (docs/design/measurement.md, "Stages"): there the
    server's stages end too, with all of `network` before them.
    """
    client = next(_clients(ends), None)
    if client is None or _has_failed(ends):
        return [0 for _ in ends]
    answered_ns = _length_ns(client.slow) - sum(
        duration_ns(one.duration) for one in client.slow.stages if one.stage in _READ_BY_CLIENT
    )
    return [max(0, answered_ns - _length_ns(one.slow)) if one.result.perspective == Role.SERVER else 0 for one in ends]


def _has_failed(ends: Iterable[Exchange]) -> bool:
    return any(one.slow.error for one in ends)


def _length_ns(slow: Slow) -> int:
    return sum(duration_ns(one.duration) for one in slow.stages)


def _rows(slow: Slow, start_ns: int, axis_ns: int) -> Iterable[Row]:
    total_ns = _length_ns(slow) or 1
    for stage, mark in zip(slow.stages, drawing.waterfall(slow, start_ns, axis_ns), strict=True):
        length_ns = duration_ns(stage.duration)
        yield Row(mark, units.duration(length_ns), f"{units.percent(Fraction(length_ns, total_ns), 1)} %")


def _title(one: Exchange, *, titled: bool) -> str:
    result, slow, namespace = one
    since = slow.time.replace("T", " ").removesuffix("Z")
    objective = f"{namespace}/{words.name(result)}" if titled else words.name(result)
    other = "client" if result.perspective == Role.SERVER else "server"
    halves = f", joined with the {other}'s half" if slow.joined else ""
    peer = f"; at the other end {slow.peer}" if slow.peer else ""
    side = result.perspective.lower()
    return f"from {since} UTC on, at the {side}'s side of {result.target}{halves}{peer}; objective {objective}:"


def _drawn(one: Exchange, ends: Sequence[Exchange]) -> Iterable[Line]:
    """Yield what the picture of this half cannot show."""
    if one.result.perspective == Role.SERVER:
        if one.slow.stages and any(_clients(ends)):
            yield Line("drawn", _APART if _has_failed(ends) else _LATEST)
    elif any(stage.stage == stages.NETWORK.name for stage in one.slow.stages):
        yield Line("drawn", f"with {stages.NETWORK.name} in one piece: how much of it was on which way is not known")


def _why(one: Exchange, ends: Sequence[Exchange], asked: str, known: Container[str]) -> Iterable[Line]:
    result, slow = one.result, one.slow
    longest = words.longest(slow)
    if longest:
        meaning = exchanges.stage_of(longest.stage).meaning
        yield Line("mostly", f"{longest.stage}: {meaning}" if meaning else longest.stage)
    for hit in slow.evidence:
        yield Line("before it:" if evidence.is_before(hit) else "why:", evidence.sentence(hit, result, slow))
    if longest and _opened_connection(slow) and _of_server(result, longest.stage) is stages.READ_DELAY:
        yield Line("why:", _ACCEPTED_LATE)
    for call in slow.waited_for:
        command = f"{asked} {call.trace_id}" if call.trace_id in known else ""
        yield Line("why:", words.waited_for(call), call.trace_id, command)
    waits_for_known = longest and _kind(longest) is stages.WAIT and len({end.result.perspective for end in ends}) > 1
    if longest and not waits_for_known and not _is_explained(longest, result, slow):
        yield from (Line("more:", more) for more in [MORE.get(_kind(longest))] if more)


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
    return KIND.get(drawn, drawn)


def _opened_connection(slow: Slow) -> bool:
    """Return whether it was the first on its connection: only such a one is explained by the handshake."""
    return any(one.signal == words.HANDSHAKES for one in slow.evidence)


def _of_server(result: Result, name: str) -> stages.Stage | None:
    """Return which stage of the server's that is, `None` where it is the client's own or the way."""
    stage = exchanges.stage_of(name)
    if stage is stages.SERVER_READ_DELAY:
        return stages.READ_DELAY
    return stage if result.perspective == Role.SERVER else None
