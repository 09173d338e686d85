"""The other end beside an objective: the same target's durations as its callers had them, or its server. Pure but for
the store that is asked.

A store holds durations for each objective and side. So both ends are known where objectives of one target have both
perspectives; the counts of the other side are its own: callers in the LatencyProbe's scope, whatever the server
answered to others. Where no objective has it, nothing is told: records are sampled, and stand for no distribution.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from latencyprobe.errors import StoreError
from latencyprobe.plan import Role
from latencyprobe.report import units
from latencyprobe.report.model import OtherEnd, Result
from latencyprobe.report.units import duration_ns
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import Counts

ENOUGH = 100  # events of each side: of fewer, p99 is the slowest alone
_BEYOND = 2  # times the fastest call of all, which took no less than a round trip

Read = Callable[[int, int], SliRow]
Pairs = Mapping[ObjectiveKey, ObjectiveKey]
_Target = tuple[str, str, str, Role]


def pairs(objectives: Iterable[Objective]) -> Pairs:
    """Return for each series one of the same target's other side, where there is one. Of several, the first: their
    durations are the same."""
    found: dict[_Target, ObjectiveKey] = {}
    listed = list(objectives)
    for one in listed:
        found.setdefault(_target(one, one.key.perspective), one.key)
    others = ((one.key, found.get(_target(one, _OTHER[one.key.perspective]))) for one in listed)
    return {key: other for key, other in others if other is not None}


_OTHER = {Role.SERVER: Role.CLIENT, Role.CLIENT: Role.SERVER}


def _target(one: Objective, side: Role) -> _Target:
    return one.key.namespace, one.key.probe, one.target, side


class Ends(NamedTuple):
    """How to read both ends between two Unix times, without exemplars; `other` is `None` where it is not known."""

    own: Read
    other: Read | None


def reads(store: Counts, key: ObjectiveKey, ends: Pairs) -> Ends:
    """Return how a series is read, and that of its other end."""
    other = ends.get(key)
    own = partial(store.read, key, exemplars=False)
    return Ends(own, None if other is None else partial(_read_if_whole, store, other))


def _read_if_whole(store: Counts, key: ObjectiveKey, since: int, until: int) -> SliRow:
    """Return what a store holds of another objective; nothing where that is broken, as its own result says."""
    try:
        return store.read(key, since, until, exemplars=False)
    except Exception as error:
        if isinstance(error, StoreError) and error.reason:
            raise
        return SliRow(*key, minute=since)


def of(ends: Ends, since: int, until: int) -> OtherEnd | None:
    """Return what the other end tells of a window; `None` where it is not known, or has no durations."""
    row = ends.other(since, until) if ends.other else None
    if row is None:
        return None
    found = units.quantiles(row.histogram, units.P50, units.P99, units.FASTEST)
    return OtherEnd(row.perspective, row.good + row.bad, *found) if found else None


def fastest(ends: Ends, row: SliRow) -> str:
    """Return the shortest duration of a row of a caller's side, where both ends are known; else nothing."""
    caller = ends.other is not None and row.perspective is Role.CLIENT
    return next(iter(units.quantiles(row.histogram, units.FASTEST)), "") if caller else ""


def told(result: Result) -> str:
    """Return the other side's quantiles as a sentence; empty where they are not known."""
    other = result.other_end
    if other is None:
        return ""
    whose = "callers" if other.perspective == Role.CLIENT else "the server"
    return f"{whose}: p50 {other.p50}, p99 {other.p99} of {other.events:,}"


def advice(result: Result) -> str:
    """Return how long callers waited beyond what server and round trip took; empty where these explain it, or where
    there are too few calls to say."""
    if result.other_end is None or result.quantiles is None or min(result.events, result.other_end.events) < ENOUGH:
        return ""
    ours, other = result.quantiles.p99, result.other_end
    of_server = other.perspective == Role.CLIENT
    callers, server = (other.p99, ours) if of_server else (ours, other.p99)
    least = other.fastest if of_server else result.fastest
    beyond_ns = duration_ns(callers) - duration_ns(server)
    if not least or beyond_ns <= _BEYOND * duration_ns(least):
        return ""
    return (
        f"callers waited {callers} at p99 where the server took {server}: more than the round trip, which is at most "
        f"{least}, the fastest call: look at the client's stages of `latencyprobe slow`: send, wait"
    )
