"""The report's one model, in the shape of a LatencyReport; every rendering and the operator's resource come from it.

build.py makes it from a store; table, HTML, Markdown, CSV, JSON and the LatencyReport only render what it holds.
Numbers that are no counts are text with a unit or in percent (units.py). crds/latencyreport.yaml bounds the same
fields.
"""

from typing import Annotated

import msgspec

from latencyprobe.report.written import Duration, MaybeDuration, MaybeNumber, Number, Span, TraceId, Window
from latencyprobe.slo.evaluate import State

Summary = Annotated[dict[str, int], msgspec.Meta(min_length=len(State))]  # by `State.column`


class _Model(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class BurnRate(_Model, frozen=True):
    """One alert. `state`: Firing, Quiet, or Unreachable where the goal is so low that it can never fire."""

    severity: str
    long: str
    short: str
    factor: MaybeNumber
    state: str
    long_rate: Number | None = None
    short_rate: Number | None = None


class Quantiles(_Model, frozen=True):
    """Durations that this share of the events did not exceed, within 1.1 %."""

    p50: Duration
    p90: Duration
    p99: Duration
    p999: Duration


class BadStage(_Model, frozen=True):
    """Of the bad events: how many this stage dominated, their share in percent, and the time spent in it."""

    stage: str
    events: int
    share: Number
    time: Duration


class Explained(_Model, frozen=True):
    """What TCP did to the events, by signal: how many it hit and how many of them were bad, each also in percent of all
    and of the bad ones; `wait`: the time that it cost them at most. Of `handshakes`: before how many connecting took
    longer than the threshold, and that time. From records: exchanges whose record is among the `lost` are not among
    them."""

    signal: str
    events: int
    share: Number
    bad: int
    bad_share: Number
    wait: Duration
    lost: int = 0


class Pressure(_Model, frozen=True):
    """What held up the containers whose exchanges these are, by kind (latencyprobe/pressure.py): its share of their
    time in percent; `bad_share`: of the seconds in which bad ones ended, absent where there were none; `time`: of all
    containers together. Of `throttled` all are at most."""

    kind: str
    share: Number
    time: Duration
    bad_share: Number | None = None


class Exclusion(_Model, frozen=True):
    """Turns that count as no RPC for one reason (latencyprobe/exclusions.py)."""

    reason: str
    turns: int


class Coverage(_Model, frozen=True):
    """What stands behind the counts. `ratio` in percent (slo/evaluate.py); `gaps`: node time that was not measured;
    `exclusions`: what makes up `ambiguous` and `excluded`, most frequent first; `sampled_out`: turns whose records the
    limit left out, so that what was seen less these and `records_lost` is what could be joined."""

    ratio: Number
    seen: int
    ambiguous: int
    excluded: int
    lost: int
    records_lost: int
    joined: int
    nodes_missing: int
    gaps: Span
    exclusions: tuple[Exclusion, ...] = ()
    sampled_out: int = 0


class Stage(_Model, frozen=True):
    """One stage of an exchange."""

    stage: str
    duration: Duration


class EvidenceSummary(_Model, frozen=True):
    """What a signal says of one exchange (as in sli): `what` and how often, and the time that it tells of."""

    signal: str
    what: str
    count: int = 0
    wait: MaybeDuration = ""


class WaitedFor(_Model, frozen=True):
    """RPCs to one peer that a server waited for while it processed one; `trace_id`: of the longest."""

    peer: str
    calls: int
    wait: Duration
    trace_id: TraceId


class Slow(_Model, frozen=True):
    """One of the slowest exchanges of the window. `evidence`: what explains it, longest wait first; `waited_for`: its
    own calls, longest wait first."""

    trace_id: TraceId
    time: str
    duration: Duration
    stages: tuple[Stage, ...]
    peer: str = ""
    error: str = ""
    joined: bool = False
    evidence: tuple[EvidenceSummary, ...] = ()
    waited_for: tuple[WaitedFor, ...] = ()


class Waited(_Model, frozen=True):
    """What the events whose stages count waited for one peer within `process`: the time, and its share of `process` in
    percent. From records."""

    peer: str
    time: Duration
    share: Number


class Cause(_Model, frozen=True):
    """What `process` of the events whose stages count went to (latencyprobe/causes.py): the time, and its share of
    `process` in percent. From records; what they do not tell is `unknown`."""

    cause: str
    time: Duration
    share: Number


class Peer(_Model, frozen=True):
    """Bad events at one other end."""

    peer: str
    bad: int


class BurnDown(_Model, frozen=True):
    """How the error budget of the window went: what was `left` of it after each `step`, in percent and negative when
    overspent. `since`: when the first step began; the last one may not be over."""

    since: str
    step: Span
    left: tuple[Number, ...]


class WeekBefore(_Model, frozen=True):
    """The same figures of the window that ended a week before: `stage` is the one that took longest of most bad events,
    and of how many of them in percent."""

    events: int
    bad: int
    sli: Number
    error_budget_remaining: Number
    p99: MaybeDuration = ""
    stage: str = ""
    share: MaybeNumber = ""


class OtherEnd(_Model, frozen=True):
    """The same target's durations at the other end of its connections (both_ends.py): of how many events there, within
    1.1 %. `fastest`: of all, no less than a round trip where it is a caller's."""

    perspective: str
    events: int
    p50: Duration
    p99: Duration
    fastest: Duration


class PeerNow(_Model, frozen=True):
    """One other end in the last full minutes, as `Now`; from records. `peer`: empty for all others together."""

    peer: str
    rate: Number
    bad: Number
    p50: Duration
    p99: Duration


class Now(_Model, frozen=True):
    """The last full minutes. `over`: how long they are; `rate`: events a second; `bad` in percent; `stages`: of bad
    events, those that dominated most, as many as a bar shows; `peers`: with most bad ones, then with most, the worst
    first, then all others; absent where they are not known. Two digits: less is no change (docs/slo.md)."""

    over: Span
    rate: Number
    bad: Number
    p50: Duration
    p99: Duration
    other_p50: Duration | None = None
    other_p99: Duration | None = None
    stages: tuple[BadStage, ...] = ()
    peers: tuple[PeerNow, ...] = ()


class Result(_Model, frozen=True):
    """One objective. `sli`, `goal` and `errorBudgetRemaining` in percent; absent where there are no events. `reason`:
    why it could not be evaluated, and has no figures, or not with the latest counts; it never looks healthy then.
    `not_measured`: why its LatencyProbe is not measured now (reason: message), empty while it is. `fastest`: the
    shortest duration of a caller, where both ends are known. `untold`: fields that the store which it
    was read from does not know (`coverage.lost`): empty or 0, say nothing. `window_events`: what its state is judged
    by, where the figures are of less than its window (`--since`, not in a cluster)."""

    probe: str
    objective: str
    target: str
    perspective: str
    threshold: Duration
    goal: Number
    window: Window
    state: State
    events: int
    bad: int
    events_needed: int
    coverage: Coverage
    updated: str
    sli: Number | None = None
    error_budget_remaining: Number | None = None
    burn_rates: tuple[BurnRate, ...] = ()
    quantiles: Quantiles | None = None
    bad_by_stage: tuple[BadStage, ...] = ()
    evidence: tuple[Explained, ...] = ()
    pressure: tuple[Pressure, ...] = ()
    slowest: tuple[Slow, ...] = ()
    top_peers: tuple[Peer, ...] = ()
    since: str | None = None
    reason: str = ""
    not_measured: str = ""
    waited_for: tuple[Waited, ...] = ()
    causes: tuple[Cause, ...] = ()
    burn_down: BurnDown | None = None
    week_before: WeekBefore | None = None
    other_end: OtherEnd | None = None
    fastest: MaybeDuration = ""
    now: Now | None = None
    untold: tuple[str, ...] = ()
    window_events: int | None = None


class Report(_Model, frozen=True):
    """The objectives of one namespace, worst first. `summary`: how many are in each state; `omitted`: results that
    found no room."""

    summary: Summary
    results: tuple[Result, ...]
    omitted: int = 0


class Metadata(_Model, frozen=True):
    """What a report's reader needs of its metadata."""

    name: str
    namespace: str = ""


class LatencyReport(_Model, frozen=True):
    """A report as the API server keeps it, and as `report -o json` prints it. `worst`: the name of the worst objective,
    where `--limit` left it out; `made_by`: in a cluster the operator and its version."""

    api_version: str
    kind: str
    metadata: Metadata
    summary: Summary
    results: tuple[Result, ...]
    omitted: int = 0
    worst: str = ""
    made_by: str = ""
