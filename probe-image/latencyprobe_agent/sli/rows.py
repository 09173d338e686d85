"""SLI rows from what one interval brought, as pure functions of counts, halves and pairs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from latencyprobe import sli
from latencyprobe.causes import folded
from latencyprobe.sli import Coverage, SliRow, SlowExchange
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.evidence import Joined, Shared
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.objectives import TrackedObjective
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.stages import CLIENT_STAGES, PAIR_STAGES, half_stages
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.signals.exchanges import place
from latencyprobe_agent.vocabulary.records import Outcome, Role
from latencyprobe_agent.vocabulary.values import AMBIGUOUS, EXCLUSIONS


def empty(objective: TrackedObjective, minute: int) -> SliRow:
    """Return an empty row of the objective."""
    return SliRow(*objective.key, minute=minute)


def counted(objective: TrackedObjective, gained: np.void, minute: int) -> SliRow:
    """Return the row that one COUNTS record of differences makes. Exact: no ring is involved."""
    events, excluded = int(gained["outcomes"].sum()), int(gained["excluded"].sum())
    ambiguous = int(gained["excluded"][AMBIGUOUS].sum())
    reasons = {one.name: int(gained["excluded"][excluded]) for excluded, one in EXCLUSIONS.items()}
    good, bad = objective.good_and_bad(gained)
    return replace(
        empty(objective, minute),
        good=good,
        bad=bad,
        histogram=histogram.sparse(gained["histogram"]),
        stage_ns=_named(half_stages(objective.role), gained["over_stage_ns"][objective.threshold]),
        dominant=_named(half_stages(objective.role), gained["over_dominant"][objective.threshold]),
        coverage=Coverage(
            seen=events + excluded,
            ambiguous=ambiguous,
            excluded=excluded - ambiguous,
            records_lost=int(gained["lost_records"]),
            sampled_out=int(gained["sampled_out_records"]),
        ),
        exclusions={reason: n for reason, n in reasons.items() if n},
    )


class Events(NamedTuple):
    """SLI events of one target set and role: some `rows` of `halves`. `pair_at`: the row in `halves` of the half of
    this role, of each of `pairs`."""

    halves: Halves
    rows: NDArray[np.intp]
    pairs: Pairs
    pair_at: NDArray[np.intp]


def slowest(objective: TrackedObjective, events: Events, *, from_ns: int, offset_ns: int) -> tuple[SlowExchange, ...]:
    """Return the slowest ones that took at least `from_ns`, by their `place` in hex instead of the trace id.

    `offset_ns`: Unix time less boot time.
    """
    duration_ns = events.halves.duration_ns
    some = events.rows[duration_ns[events.rows] >= from_ns]
    if len(some) > sli.SLOWEST:
        some = some[np.argpartition(duration_ns[some], -sli.SLOWEST)[-sli.SLOWEST :]]
    found = []
    for row in some.tolist():
        of_pair = np.flatnonzero(events.pair_at == row)
        pair = int(of_pair[0]) if len(of_pair) else -1
        found.append(_slow(objective.role, events.halves, row, events.pairs, pair, offset_ns=offset_ns))
    return tuple(sorted(found, key=lambda slow: -slow.duration_ns))


def bad_peers(objective: TrackedObjective, events: Events) -> dict[str, int]:
    """Return how many are bad by peer: packed addresses in hex."""
    halves, rows = events.halves, events.rows
    bad = rows[objective.bad(halves.duration_ns[rows], halves.rec["outcome"][rows])]
    if not len(bad):
        return {}
    addresses, counts = np.unique(halves.rec["peer_addr"][bad].view("V16"), return_counts=True)
    return sli.most({a.tobytes().hex(): c for a, c in zip(addresses, counts.tolist(), strict=True)})


def explained(
    objective: TrackedObjective, signal: str, found: Joined | Shared, rows: NDArray[np.intp], minute: int
) -> SliRow:
    """Return the row with how many exchanges a signal explains, how many of them bad ones, and the time lost: each half
    for those that it stands for."""
    half, first, new_ns = found.half[rows], found.first[rows], found.new_ns[rows]
    bad, stands_for = objective.bad(half["duration_ns"], half["outcome"]), half["adjusted_count"].astype(np.int64)
    sums = (stands_for * first, stands_for * (first & bad), stands_for * new_ns)
    count = sli.EvidenceCount(*(int(values.sum()) for values in sums))
    return replace(empty(objective, minute), evidence={signal: count})


def waited_before(
    objective: TrackedObjective, explains: Explains, found: Joined | Shared, rows: NDArray[np.intp]
) -> sli.EvidenceCount | None:
    """Return how many exchanges the application had waited for, before they began, for longer than the threshold, how
    many of them are bad ones, and that time, if any: each half for those that it stands for."""
    if isinstance(found, Shared) or explains.before is None:
        return None
    before_ns = explains.before(found.evidence.rec[rows])
    late = objective.slow(before_ns)
    half = found.half[rows[late]]
    bad, stands_for = objective.bad(half["duration_ns"], half["outcome"]), half["adjusted_count"].astype(np.int64)
    sums = (stands_for, stands_for * bad, stands_for * before_ns[late])
    return sli.EvidenceCount(*(int(values.sum()) for values in sums)) if late.any() else None


def caused(
    objective: TrackedObjective, explains: Explains, found: Joined | Shared, rows: NDArray[np.intp], minute: int
) -> SliRow | None:
    """Return the row with what `process` of servers' exchanges over the threshold went to, if the signal tells of any:
    each half for those that it stands for. Of a caller's exchanges it says nothing."""
    if isinstance(found, Shared) or objective.role != Role.SERVER:
        return None
    half = found.half[rows]
    slow = objective.slow(half["duration_ns"])
    records, stands_for = found.evidence.rec[rows[slow]], half["adjusted_count"][slow].astype(np.int64)
    cause_ns = folded(explains.causes(records, stands_for))
    return replace(empty(objective, minute), cause_ns=cause_ns) if cause_ns else None


def evidence_lost(objective: TrackedObjective, signal: str, lost: int, minute: int) -> SliRow:
    """Return the row with how many records of a signal never arrived."""
    return replace(empty(objective, minute), evidence={signal: sli.EvidenceCount(lost=lost)})


def evidence_summaries(
    signal: str, explains: Explains, found: Joined | Shared, row: int
) -> tuple[sli.EvidenceSummary, ...]:
    """Return what one row of `found` says of its exchange."""
    new_ns = int(found.new_ns[row])
    if isinstance(found, Shared):
        return (sli.EvidenceSummary(signal, "server", 0, new_ns),)
    return tuple(sli.EvidenceSummary(signal, *one) for one in explains.describe(found.evidence.rec[row], new_ns))


def joined(objective: TrackedObjective, minute: int, pairs: Pairs, rows: NDArray[np.intp]) -> SliRow:
    """Return the row that counts some pairs as joined, and corrects a client's row by what they know; some of its sums
    are negative.

    The counts know the stages of the client's half only. For the pairs over the threshold these are taken off, and
    the pair's own stages put in their place: the sums stay the same, `wait` becomes `network` and `server_*`.
    """
    row = replace(empty(objective, minute), coverage=Coverage(joined=len(rows)))
    if objective.role != Role.CLIENT:
        return row
    slow = rows[objective.slow(pairs.of_clients(lambda client: client.duration_ns)[rows])]
    if not len(slow):
        return row
    halves, whole = pairs.clients(slow).stages, pairs.stages[slow]
    of_half = np.bincount(halves.argmax(axis=1), minlength=len(CLIENT_STAGES))
    of_pair = np.bincount(whole.argmax(axis=1), minlength=len(PAIR_STAGES))
    return replace(
        row,
        stage_ns=sli.added(_named(CLIENT_STAGES, -halves.sum(axis=0)), _named(PAIR_STAGES, whole.sum(axis=0))),
        dominant=sli.added(_named(CLIENT_STAGES, -of_half), _named(PAIR_STAGES, of_pair)),
    )


def _named(names: Sequence[str], values: NDArray[np.integer]) -> dict[str, int]:
    return {name: value for name, value in zip(names, values.tolist(), strict=True) if value}


def _slow(role: Role, halves: Halves, i: int, pairs: Pairs, pair: int, *, offset_ns: int) -> SlowExchange:
    whole = role == Role.CLIENT and pair >= 0
    names, stages = (PAIR_STAGES, pairs.stages[pair]) if whole else (half_stages(role), halves.stages[i])
    outcome = Outcome(int(halves.rec["outcome"][i]))
    return SlowExchange(
        trace_id=place(halves.rec[i : i + 1]).tobytes().hex(),
        start_unix_ns=int(halves.start_ns[i]) + offset_ns,
        duration_ns=int(halves.duration_ns[i]),
        stages=_named(names, stages),
        peer=halves.rec["peer_addr"][i].tobytes().hex(),
        error="" if outcome is Outcome.OK else outcome.name.lower(),
        joined=pair >= 0,
    )
