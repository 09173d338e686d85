"""The exemplars of each series since the last export: spans that have been let in among those that wait to leave.

Receives rows of spans as they are let in, and finds, before an export or as soon as many wait, which of them stand for
their series; an RPC's duration and its stages are looked at together. What is folded into `other` has no exemplars.
"""

from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.keys import span_ids
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import half_stages
from latencyprobe_agent.telemetry.exemplars import EXEMPLAR, largest
from latencyprobe_agent.telemetry.matching import halves_of
from latencyprobe_agent.telemetry.metric_points import duration_of
from latencyprobe_agent.telemetry.peer_names import addresses
from latencyprobe_agent.telemetry.record_histograms import Group, Series
from latencyprobe_agent.telemetry.span_rows import ROW, concatenated, taken
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import ExchangeClass, Role

METRICS = (
    *(names.SERVER_DURATION, names.CLIENT_DURATION, names.PEER_DURATION),
    *(names.FIRST_ANSWER_DURATION, names.STAGE_DURATION),
)
_VALUES = 1 + ROW["stages"].shape[0]
_SHARED = ("join_key", "trace_id", "span_id")
# A span as the exemplar of several series. `values_ns`: its duration, then its stages; of a streaming call the time to
# its first answer.
_SPAN = np.dtype([("values_ns", "i8", _VALUES), ("end_ns", "i8"), *((name, EXEMPLAR[name]) for name in _SHARED)])
_MANY = 2048  # rows that wait: look at them now
_PAIRS = 1024  # (group, address) whose service is remembered; of others there are no exemplars by peer


class ExemplarSeries:
    """`capacity`: rows of 272 bytes that may wait to be looked at; of more the first ones."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._new: list[NDArray[np.void]] = []
        self._named: dict[tuple[Group, str], str | None] = {}  # None: it had several
        self._unnamed: Set[tuple[Group, str]] = frozenset()
        self._slots: dict[Series, int] = {}  # stages have that of their duration
        self._best = np.zeros((0, _VALUES + 1), _SPAN)  # by slot: the largest by each value, and by join key

    def put(self, rows: NDArray[np.void]) -> None:
        """Take ROW[n] that have just been let in.

        Other halves and calls among them are no exemplars: they may have ended in an interval that has been exported.
        """
        counted = ~_streaming(rows) | (rows["first_answer_ns"] > 0)
        own = np.flatnonzero(counted & (rows["reason"] <= Reason.RATIO))[: self._capacity - self._waiting]
        if len(own):
            self._new.append(taken(rows, own))

    def name(self, named: Mapping[tuple[Group, str], str], unnamed: Set[tuple[Group, str]]) -> None:
        """Take the services under which durations by peer have just been counted, and whose still wait. To be called
        once a second."""
        self._unnamed = unnamed
        for pair, service in named.items():
            if pair in self._named or len(self._named) < _PAIRS:
                self._named[pair] = service if self._named.get(pair, service) == service else None
        if self._waiting >= _MANY:
            self._choose()

    def take(self, unix_offset_ns: int) -> dict[Series, NDArray[np.void]]:
        """Return EXEMPLAR[2] of each series since the last time, and forget them. `unix_offset_ns`: add to boot time
        for Unix time."""
        self._choose()
        best, slots = self._best, self._slots
        self._slots, self._best, self._named = {}, best[:0], {}
        found = np.zeros((len(best), _VALUES, 2), EXEMPLAR)
        slowest, drawn = found[:, :, 0], found[:, :, 1]
        for name in _SHARED:
            slowest[name], drawn[name] = best[name][:, :-1], best[name][:, -1:]
        slowest["end_unix_ns"], drawn["end_unix_ns"] = best["end_ns"][:, :-1], best["end_ns"][:, -1:]
        found["end_unix_ns"] += unix_offset_ns
        slowest["value_ns"] = best["values_ns"][:, range(_VALUES), range(_VALUES)]
        drawn["value_ns"] = best["values_ns"][:, -1]
        return {one: found[slot, i] for of, slot in slots.items() for i, one in enumerate(_counted_together(of))}

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._new))

    def _choose(self) -> None:
        """Find the exemplars among what waits."""
        if not self._new:
            return
        rows, self._new = concatenated(self._new), []
        streaming, before = _streaming(rows), np.arange(len(self._best)).repeat(_VALUES + 1)
        first, group = groups([rows["target_set"], rows["role"], rows["owner"], streaming])
        whose = [Group(int(one["target_set"]), Role(one["role"]), int(one["owner"])) for one in taken(rows, first)]
        series = [
            Series(names.FIRST_ANSWER_DURATION if call else duration_of(one.role), one, "")
            for one, call in zip(whose, streaming[first].tolist(), strict=True)
        ]
        slot = np.array([self._slot(one) for one in series])[group]

        events = np.flatnonzero(~streaming)
        first, of_row = groups([group[events], *halves_of(rows["peer_addr"][events])])
        some = events[first]
        pairs = zip((whose[i] for i in group[some].tolist()), addresses(taken(rows, some)), strict=True)
        by_peer = np.array([self._slot_by_peer(*pair) for pair in pairs], np.intp)[of_row]
        known = by_peer >= 0

        spans = _spans(rows, streaming)
        spans = np.concatenate([self._best.ravel(), spans, spans[events[known]]])
        ranks = np.column_stack([spans["values_ns"].astype(np.uint64), spans["join_key"]])
        self._best = spans[largest(ranks, np.concatenate([before, slot, by_peer[known]]))]

    def _slot_by_peer(self, group: Group, peer: str) -> int:
        """Return -1 where some of the peer's durations are not counted yet, or under several names."""
        service = None if (group, peer) in self._unnamed else self._named.get((group, peer))
        return -1 if service is None else self._slot(Series(names.PEER_DURATION, group, service))

    def _slot(self, series: Series) -> int:
        return self._slots.setdefault(series, len(self._slots))


def _counted_together(of: Series) -> list[Series]:
    """Return the series that count the `values_ns` of what one of them counts first."""
    if of.metric not in (names.SERVER_DURATION, names.CLIENT_DURATION):
        return [of]
    return [of, *(Series(names.STAGE_DURATION, of.group, stage) for stage in half_stages(of.group.role))]


def _streaming(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which of ROW[n] are streaming calls: all others are SLI events, or would be no spans."""
    found: NDArray[np.bool_] = (rows["conn_class"] == ExchangeClass.STREAMING) & (rows["stream_id"] != 0)
    return found


def _spans(rows: NDArray[np.void], streaming: NDArray[np.bool_]) -> NDArray[np.void]:
    """Return ROW[n] as _SPAN[n]."""
    found = np.zeros(len(rows), _SPAN)
    duration_ns = rows["stages"].sum(axis=1)
    found["values_ns"][:, 0] = np.where(streaming, rows["first_answer_ns"], duration_ns)
    found["values_ns"][:, 1:] = rows["stages"]
    found["end_ns"] = rows["start_ns"] + duration_ns
    found["join_key"], found["trace_id"] = rows["join_key"], rows["trace_id"]
    high, low = rows["trace_id"].T
    found["span_id"] = span_ids(np.where(rows["role"] == Role.SERVER, low, high))
    return found
