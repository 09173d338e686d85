"""SLI counts: what agents hand to the store, directly (standalone) or through the directory.

One row per objective and minute, all numbers are differences and may be added up. Durations in ns; histogram keys are
indices of base-2 exponential buckets at scale 5 in seconds (OpenTelemetry: bucket i holds (2^(i/32), 2^((i+1)/32)] s).
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from latencyprobe.causes import folded
from latencyprobe.plan import Role

HISTOGRAM_SCALE = 5
HISTOGRAM_INDEXES = range(-672, 320)  # 477 ns to 17 min; shorter and longer durations are in the first and the last
SLOWEST = 5  # exchanges kept per row, whatever time it spans
PEERS = 20
OTHERS = ""  # whose figures by peer are of all that found no place
SUMMARIES = 8  # of evidence, kept per exchange
WAITED_FOR = 3  # peers that one exchange waited for

K = TypeVar("K")


class _Wire(msgspec.Struct, frozen=True, omit_defaults=True):  # unknown fields are ignored: wire.py
    pass


class Coverage(_Wire, frozen=True):
    """How complete the counts are. `seen` = events + ambiguous + excluded; `lost` are exchanges that reached no count;
    `records_lost` reached the counts but no span; `joined` pairs know the other half's stages. `measured_ms`: time of
    the minute in which this node measured; `expected_ms`: in which it should have (written by the store's owner).
    `sampled_out`: of those seen, who reached the counts and were left out of the records by their limit."""

    seen: int = 0
    ambiguous: int = 0
    excluded: int = 0
    lost: int = 0
    records_lost: int = 0
    joined: int = 0
    measured_ms: int = 0
    expected_ms: int = 0
    sampled_out: int = 0


class EvidenceSummary(_Wire, frozen=True, array_like=True):
    """Records of one signal that say the same of one exchange.

    `what`: a retransmit's reason (`server`: what the server's half lost, for whatever reason), a handshake's outcome, a
    record of TCP-RT, who held unsent bytes and why (unsent.py). `count`: segments, SYNs, records, bytes; 0 = not told.
    `wait_ns`: what retransmits cost at most, how long connecting took, how long TCP-RT saw the message under way, how
    long bytes were held; 0 = not told.
    """

    signal: str
    what: str
    count: int
    wait_ns: int


class WaitedFor(_Wire, frozen=True, array_like=True):
    """RPCs to one peer that a server made and waited for while it processed this one.

    `peer`: as a person would name it, with the port; `calls`: how many there are records of; `wait_ns`: the time that
    they cover together; `trace_id`: of the longest.
    """

    peer: str
    calls: int
    wait_ns: int
    trace_id: str


class SlowExchange(_Wire, frozen=True):
    """One of the slowest exchanges of a row. `start_unix_ns`, `duration_ns`; `stages` in ns by stage name; `peer` as a
    person would name it (`namespace/workload`, else address); `evidence`: what explains it, longest wait first;
    `waited_for`: its own calls likewise, at most WAITED_FOR. Of one exchange there may be several accounts, the later
    ones with the evidence and calls alone that came since."""

    trace_id: str
    start_unix_ns: int
    duration_ns: int
    stages: dict[str, int]
    peer: str
    error: str = ""
    joined: bool = False
    evidence: tuple[EvidenceSummary, ...] = ()
    waited_for: tuple[WaitedFor, ...] = ()


class EvidenceCount(_Wire, frozen=True, array_like=True):
    """Exchanges that a signal explains, how many of them were bad, and the time that it cost them at most; `lost`: its
    records that the ring refused, so that more may be explained by it."""

    exchanges: int = 0
    bad: int = 0
    wait_ns: int = 0
    lost: int = 0


class PressureTime(_Wire, frozen=True, array_like=True):
    """How long containers were held up by one kind of pressure: `us` of the `of_us` that they were looked at, all of
    them added up; `bad_us`, `bad_of_us`: those of the seconds in which bad events of theirs ended."""

    us: int = 0
    of_us: int = 0
    bad_us: int = 0
    bad_of_us: int = 0


class PeerCounts(_Wire, frozen=True, array_like=True):
    """Events of one other end: how many, how many of them bad, and their durations as a row's histogram has them. From
    records, each for as many as it stands for."""

    events: int = 0
    bad: int = 0
    histogram: dict[int, int] = {}


class SliRow(_Wire, frozen=True):
    """Counts of one objective in one minute (`minute`: Unix seconds, a multiple of 60).

    `stage_ns`: of bad events, the sum of each stage; `dominant`: how many bad events each stage dominated. Stage names
    as docs/design/measurement.md, "Stages"; for joined pairs of the client perspective also `network` and `server_*`.
    These replace the client's own stages, so in a row that came after the counts which it corrects, a client's stage
    may be negative. `hash`: of the objective's definition. `exclusions`: turns that count as no RPC, by reason
    (exclusions.py); they add up to `coverage.ambiguous` and `coverage.excluded`. `pressure`: what held up the
    containers on this side of the exchanges, by kind (pressure.py); a kind that is absent is not known. `waited_ns`:
    how long servers waited, within the stage `process` of the events whose stages count, for RPCs of their own, by peer
    with port, at most 20; from records, each for as many as it stands for. `cause_ns`: likewise, what that
    `process` went to, as far as it is known, by cause (causes.py). `by_peer`: of a minute that is over, at most PEERS
    and OTHERS; for the last minutes alone, no store keeps it.
    """

    namespace: str
    probe: str
    probe_uid: str
    objective: str
    hash: str
    perspective: Role
    minute: int
    good: int = 0
    bad: int = 0
    histogram: dict[int, int] = {}
    stage_ns: dict[str, int] = {}
    dominant: dict[str, int] = {}
    coverage: Coverage = Coverage()
    slowest: tuple[SlowExchange, ...] = ()
    peers: dict[str, int] = {}  # bad events by peer, from records, at most 20
    evidence: dict[str, EvidenceCount] = {}  # by signal, from records
    exclusions: dict[str, int] = {}
    pressure: dict[str, PressureTime] = {}
    waited_ns: dict[str, int] = {}
    cause_ns: dict[str, int] = {}
    by_peer: dict[str, PeerCounts] = {}


class SliBatch(_Wire, frozen=True):
    """Body of `POST /v1/nodes/{node}/sli`. One batch in flight; `sequence` grows by 1 per instance."""

    instance: str
    sequence: int
    rows: tuple[SliRow, ...]


class SliAnswer(_Wire, frozen=True):
    """`expected`: the next sequence number that the directory will take. `next_upload_s`: how long the agent shall wait
    with its next counts, 0 = as it likes."""

    expected: int
    next_upload_s: float = 0.0


def merged(one: SliRow, *others: SliRow) -> SliRow:
    """Add up rows of one objective; the result keeps the first one's `minute`."""
    rows = (one, *others)
    coverage = map(sum, zip(*(msgspec.structs.astuple(row.coverage) for row in rows), strict=True))
    return replace(
        one,
        good=sum(row.good for row in rows),
        bad=sum(row.bad for row in rows),
        histogram=added(*(row.histogram for row in rows)),
        stage_ns=added(*(row.stage_ns for row in rows)),
        dominant=added(*(row.dominant for row in rows)),
        coverage=Coverage(*coverage),
        slowest=slowest(slow for row in rows for slow in row.slowest),
        peers=most(added(*(row.peers for row in rows))),
        evidence=added_evidence(*(row.evidence for row in rows)),
        exclusions=added(*(row.exclusions for row in rows)),
        pressure=added_pressure(*(row.pressure for row in rows)),
        waited_ns=most(added(*(row.waited_ns for row in rows))),
        cause_ns=folded(added(*(row.cause_ns for row in rows))),
        by_peer=worst(*(row.by_peer for row in rows if row.by_peer)),
    )


def missing(row: SliRow) -> int:
    """Return how many exchanges a report misses when nobody takes this row: to its coverage they are lost."""
    return max(row.good + row.bad, 0) + row.coverage.ambiguous + row.coverage.lost


def added_evidence(*counts: Mapping[str, EvidenceCount]) -> dict[str, EvidenceCount]:
    """Add up what signals explain."""
    return {signal: EvidenceCount(*sums) for signal, sums in _added_fields(counts).items()}


def added_pressure(*times: Mapping[str, PressureTime]) -> dict[str, PressureTime]:
    """Add up what held up containers."""
    return {kind: PressureTime(*sums) for kind, sums in _added_fields(times).items()}


def _added_fields(counts: Iterable[Mapping[str, EvidenceCount] | Mapping[str, PressureTime]]) -> dict[str, list[int]]:
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for one in counts:
        for name, count in one.items():
            by_name.setdefault(name, []).append(msgspec.structs.astuple(count))
    return {name: [sum(field) for field in zip(*fields, strict=True)] for name, fields in by_name.items()}


def added(*counts: Mapping[K, int]) -> dict[K, int]:
    """Add up sparse counts."""
    total: dict[K, int] = {}
    for one in counts:
        for key, count in one.items():
            total[key] = total.get(key, 0) + count
    return total


def slowest(exchanges: Iterable[SlowExchange]) -> tuple[SlowExchange, ...]:
    """Keep the slowest exchanges, slowest first; of two accounts of one, that which knows both halves, and the evidence
    of both."""
    distinct: dict[str, SlowExchange] = {}
    for slow in sorted(exchanges, key=lambda slow: slow.joined):
        other = distinct.get(slow.trace_id)
        distinct[slow.trace_id] = _both(other, slow) if other and (other.evidence or other.waited_for) else slow
    return tuple(sorted(distinct.values(), key=lambda slow: -slow.duration_ns)[:SLOWEST])


def _both(one: SlowExchange, other: SlowExchange) -> SlowExchange:
    """Return the second of two accounts with what both tell; of its calls an exchange has been told once."""
    evidence = added_summaries(one.evidence + other.evidence)
    return replace(other, evidence=evidence, waited_for=other.waited_for or one.waited_for)


def added_summaries(summaries: Iterable[EvidenceSummary]) -> tuple[EvidenceSummary, ...]:
    """Add up the summaries that say the same; keep those with the longest wait, longest first."""
    total: dict[tuple[str, str], EvidenceSummary] = {}
    for one in summaries:
        before = total.get((one.signal, one.what), EvidenceSummary(one.signal, one.what, 0, 0))
        total[one.signal, one.what] = replace(one, count=before.count + one.count, wait_ns=before.wait_ns + one.wait_ns)
    return tuple(sorted(total.values(), key=lambda one: (-one.wait_ns, one.signal, one.what))[:SUMMARIES])


def longest(waited_for: Iterable[WaitedFor]) -> tuple[WaitedFor, ...]:
    """Keep what was waited for longest."""
    return tuple(sorted(waited_for, key=lambda one: (-one.wait_ns, one.peer))[:WAITED_FOR])


def most(peers: Mapping[str, int]) -> dict[str, int]:
    """Keep the peers with the highest counts."""
    return dict(sorted(peers.items(), key=lambda item: (-item[1], item[0]))[:PEERS])


def worst(*by_peer: Mapping[str, PeerCounts], most: int = PEERS) -> dict[str, PeerCounts]:
    """Add up figures by peer; keep those with most bad events, then with most events, the worst first, and after them
    all others as one."""
    total: dict[str, list[PeerCounts]] = {}
    for one in by_peer:
        for peer, counts in one.items():
            total.setdefault(peer, []).append(counts)
    sums = {peer: added_counts(counts) for peer, counts in total.items()}
    ranked = sorted(sums.keys() - {OTHERS}, key=lambda peer: (-sums[peer].bad, -sums[peer].events, peer))
    kept, rest = ranked[:most], [*ranked[most:], *({OTHERS} & sums.keys())]
    return {peer: sums[peer] for peer in kept} | ({OTHERS: added_counts(sums[peer] for peer in rest)} if rest else {})


def added_counts(counts: Iterable[PeerCounts]) -> PeerCounts:
    """Add up figures of peers."""
    first, *others = counts
    if not others:
        return first
    every = (first, *others)
    histogram = added(*(one.histogram for one in every))
    return PeerCounts(sum(one.events for one in every), sum(one.bad for one in every), histogram)
