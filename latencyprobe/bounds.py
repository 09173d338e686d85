"""What a row of counts may say: the bounds of everything that an agent sends, and of the sums of it. Pure.

The operator's `directory/ingest.py` asks here before it stores a row; to `store` a sum of MAX_SUM is broken. What a
node counted itself is refused when it is impossible. What others told it, the names of peers, how long another host
kept them waiting and how many exchanges its records stand for, is cut to size instead: nobody shall be able to make an
honest agent's row impossible.
"""

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from latencyprobe import causes, exclusions, pressure, unsent
from latencyprobe.plan import Role
from latencyprobe.sli import (
    HISTOGRAM_INDEXES,
    OTHERS,
    PEERS,
    SLOWEST,
    SUMMARIES,
    WAITED_FOR,
    Coverage,
    EvidenceCount,
    EvidenceSummary,
    PeerCounts,
    PressureTime,
    SliRow,
    SlowExchange,
    WaitedFor,
    added_evidence,
    worst,
)
from latencyprobe.spec import EvidenceSpec, signal_of
from latencyprobe.stages import BY_NAME, CLIENT, names
from latencyprobe.text import printable

# Of one objective, in one row of one node. 512 processors that end 10^6 exchanges a second each make 2^35 in a minute;
# the rest is for what goes on being counted while an agent is stopped: half an hour at that rate, days at a usual one.
MAX_EVENTS = 1 << 40
# Counters are read one after the other while they grow: `good` may hold what `bad` has taken off already, until the
# next row. It is what one processor ends while the reader is held up; in a second, at 10^6 a second.
TORN = 1 << 20
MAX_SUM_NS = (1 << 63) - 1  # a stage of all bad events of a row: 100,000 that took a day and ended at once are 8.6e18
MAX_NS = 1 << 60  # one exchange: 36 years
MAX_UNIX_NS = 1 << 62  # until the year 2116
MAX_MEASURED_MS = 86_400_000  # a minute has 60,000, and again whenever the clock is set back; a row waits for a day
MAX_CONTAINER_US = MAX_MEASURED_MS * 1_000 * 1_024  # of a row: as many containers as a node has counts of
MAX_NAMES = 64  # stages, signals, exclusions: four times what there are
MAX_PEER = 320  # characters: namespace/workload at its longest
MAX_WORD = 63
# Of one count, over all nodes and a day: 5,000 nodes that end 20 million events a second each. No honest sum gets
# there, so one that did is broken. A window is read from 254 rows at most: good and bad together stay below 2^63.
MAX_SUM = 1 << 53

OTHER = "other"  # what stages, signals and exclusions count as whose names this version does not know
SIGNALS = frozenset((*(signal_of(field.name) for field in msgspec.structs.fields(EvidenceSpec)), unsent.SIGNAL))

_CORRECTED = frozenset((*names(CLIENT), OTHER))  # stages of a caller, which pairs replace later
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


class Impossible(ValueError):  # noqa: N818 - what the row is
    """A row says what no honest agent sends. `field`: where."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def bounded(row: SliRow) -> SliRow:
    """Return a row that an agent sent as it may be stored and added up. Raises Impossible."""
    if row.minute % 60 or row.minute < 0:
        raise Impossible("minute", f"{row.minute} is not the start of a minute")
    _within("good", [row.good], -TORN, MAX_EVENTS)
    _within("bad", [row.bad], -TORN, MAX_EVENTS)
    _within("histogram", row.histogram, HISTOGRAM_INDEXES[0], HISTOGRAM_INDEXES[-1])
    _within("histogram", row.histogram.values(), 0, MAX_EVENTS)
    if abs(sum(row.histogram.values()) - row.good - row.bad) > TORN:
        raise Impossible("histogram", "holds another number of events than good and bad")
    _coverage(row.coverage)
    _at_most("slowest", row.slowest, SLOWEST)
    _at_most("peers", row.peers, PEERS)
    _within("peers", row.peers.values(), 0, MAX_EVENTS)
    _at_most("waited_ns", row.waited_ns, PEERS)
    _at_most("cause_ns", row.cause_ns, MAX_NAMES)
    _within("cause_ns", row.cause_ns.values(), 0, MAX_SUM_NS)
    return replace(
        row,
        stage_ns=_refined("stage_ns", row.perspective, row.stage_ns, MAX_SUM_NS),
        dominant=_refined("dominant", row.perspective, row.dominant, MAX_EVENTS),
        slowest=tuple(map(_slow, row.slowest)),
        peers=_added_up((_text(peer, MAX_PEER), count) for peer, count in row.peers.items()),
        evidence=_evidence(row.evidence),
        exclusions=_exclusions(row.exclusions, row.coverage),
        pressure=_pressure(row.pressure),
        waited_ns=_added_up((_text(peer, MAX_PEER), _cut(ns, MAX_SUM_NS)) for peer, ns in row.waited_ns.items()),
        # of another version's causes the time is unknown here
        cause_ns=causes.folded({cause: ns for cause, ns in row.cause_ns.items() if causes.is_cause(cause)}),
        by_peer=_by_peer(row.by_peer),
    )


def _coverage(coverage: Coverage) -> None:
    if coverage.expected_ms:
        raise Impossible("coverage", "expected_ms is the directory's to say")
    _within("coverage", [coverage.measured_ms], 0, MAX_MEASURED_MS)
    _within("coverage", msgspec.structs.astuple(replace(coverage, measured_ms=0)), 0, MAX_EVENTS)
    if coverage.seen < coverage.ambiguous + coverage.excluded:
        raise Impossible("coverage", "more is ambiguous and excluded than was seen")


def _refined(field: str, perspective: Role, sums: Mapping[str, int], most: int) -> dict[str, int]:
    """Check sums by stage. Those of a caller's own stages are negative where pairs correct what was counted before."""
    known = _stages(field, sums) if sums else {}
    for stage, n in known.items():
        corrected = perspective is Role.CLIENT and stage in _CORRECTED
        _within(field, [n], -most if corrected else 0, most)
    return known


def _evidence(counts: Mapping[str, EvidenceCount]) -> dict[str, EvidenceCount]:
    if not counts:
        return {}
    _at_most("evidence", counts, MAX_NAMES)
    known: dict[str, EvidenceCount] = {}
    for signal, count in counts.items():
        cut = replace(count, wait_ns=_cut(count.wait_ns, MAX_SUM_NS))
        known = added_evidence(known, {signal if signal in SIGNALS else OTHER: cut})
    _within("evidence", [count.lost for count in known.values()], 0, MAX_EVENTS)
    return {
        signal: replace(count, exchanges=_cut(count.exchanges, MAX_EVENTS), bad=_cut(count.bad, MAX_EVENTS))
        for signal, count in known.items()
    }


def _by_peer(by_peer: Mapping[str, PeerCounts]) -> dict[str, PeerCounts]:
    """Check that each event is in one bucket, and that no more are bad than there are. Peers without events go."""
    if not by_peer:
        return {}
    _at_most("by_peer", by_peer, PEERS + (OTHERS in by_peer))
    for counts in by_peer.values():
        _within("by_peer", counts.histogram, HISTOGRAM_INDEXES[0], HISTOGRAM_INDEXES[-1])
        _within("by_peer", [counts.events, *counts.histogram.values()], 0, MAX_EVENTS)
        _within("by_peer", [counts.bad], 0, counts.events)
        if sum(counts.histogram.values()) != counts.events:
            raise Impossible("by_peer", "a histogram holds another number of events than there are")
    return worst(*({_text(peer, MAX_PEER): counts} for peer, counts in by_peer.items() if counts.events))


def _exclusions(counts: Mapping[str, int], coverage: Coverage) -> dict[str, int]:
    """Check that the reasons explain all of what the coverage calls ambiguous and excluded, and nothing else."""
    if not (counts or coverage.ambiguous or coverage.excluded):
        return {}
    _at_most("exclusions", counts, MAX_NAMES)
    _within("exclusions", counts.values(), 0, MAX_EVENTS)
    known = _added_up((reason if reason in exclusions.BY_NAME else OTHER, n) for reason, n in counts.items())
    other = known.get(OTHER, 0)  # a reason of another version is either
    ambiguous = sum(n for reason, n in known.items() if reason != OTHER and exclusions.BY_NAME[reason].ambiguous)
    excluded = sum(known.values()) - other - ambiguous
    missing = coverage.ambiguous - ambiguous, coverage.excluded - excluded
    if min(missing) < 0 or sum(missing) != other:
        raise Impossible("exclusions", "the reasons add up to other numbers than are ambiguous and excluded")
    return known


def _pressure(times: Mapping[str, PressureTime]) -> dict[str, PressureTime]:
    """Check that no part is longer than what it is a part of. Kinds of another version say nothing here."""
    _at_most("pressure", times, MAX_NAMES)
    for time in times.values():
        _within("pressure", [time.of_us], 0, MAX_CONTAINER_US)
        _within("pressure", [time.us, time.bad_of_us], 0, time.of_us)
        _within("pressure", [time.bad_us], 0, min(time.us, time.bad_of_us))
    return {kind: time for kind, time in times.items() if kind in pressure.BY_NAME}


def _slow(exchange: SlowExchange) -> SlowExchange:
    stages = _stages("slowest", exchange.stages)
    if not _TRACE_ID.fullmatch(exchange.trace_id):
        raise Impossible("slowest", "a trace id is not 32 hex digits")
    _within("slowest", [exchange.start_unix_ns], 0, MAX_UNIX_NS)
    _within("slowest", [exchange.duration_ns, *stages.values()], 0, MAX_NS)
    _at_most("slowest", exchange.evidence, SUMMARIES)
    _at_most("slowest", exchange.waited_for, WAITED_FOR)
    return replace(
        exchange,
        stages=stages,
        peer=_text(exchange.peer, MAX_PEER),
        error=_text(exchange.error, MAX_WORD),
        evidence=tuple(map(_summary, exchange.evidence)),
        waited_for=tuple(map(_waited_for, exchange.waited_for)),
    )


def _waited_for(one: WaitedFor) -> WaitedFor:
    _within("slowest", [one.calls], 0, MAX_EVENTS)
    if not _TRACE_ID.fullmatch(one.trace_id):
        raise Impossible("slowest", "a trace id is not 32 hex digits")
    return WaitedFor(_text(one.peer, MAX_PEER), one.calls, _cut(one.wait_ns, MAX_NS), one.trace_id)


def _summary(one: EvidenceSummary) -> EvidenceSummary:
    _within("slowest", [one.count], 0, MAX_EVENTS)
    signal = one.signal if one.signal in SIGNALS else OTHER
    return EvidenceSummary(signal, _text(one.what, MAX_WORD), one.count, _cut(one.wait_ns, MAX_NS))


def _stages(field: str, sums: Mapping[str, int]) -> dict[str, int]:
    _at_most(field, sums, MAX_NAMES)
    return _added_up((stage if stage in BY_NAME else OTHER, n) for stage, n in sums.items())


def _within(field: str, values: Collection[int], low: int, high: int) -> None:
    for n in (min(values), max(values)) if values else ():
        if not low <= n <= high:
            raise Impossible(field, f"{n} is not from {low} to {high}")


def _at_most(field: str, entries: Collection[object], most: int) -> None:
    if len(entries) > most:
        raise Impossible(field, f"{len(entries)} entries: at most {most}")


def _added_up(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, n in counts:
        total[name] = total.get(name, 0) + n
    return total


def _cut(n: int, most: int) -> int:
    return max(0, min(n, most))


def _text(text: str, most: int) -> str:
    """Cut a name, and take out what would steer the terminal that shows it."""
    return printable(text[:most])
